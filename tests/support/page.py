"""Checks pages of the viewer. Only the standard library.

page.py data PAGE               the page's data as JSON, after checks of its static parts; load() for tests in Python
page.py browse PAGE FIGURES...  in a headless Chromium, 400 and 1400 pixels wide: no message on the console, so many
                                figures, no element wider than the window; prints the texts that are seen. Exit 77:
                                there is no Chromium
"""
import base64
import fcntl
import hashlib
import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile


IMAGES = ("data:image/jpeg;base64,", "data:image/svg+xml;base64,")  # SVG in an image runs no script


class Static(html.parser.HTMLParser):
    """Every tag that must be closed is; nothing is loaded from elsewhere."""
    VOID = {"meta", "img", "path", "polyline", "tr", "td", "th", "dt", "dd"}

    def __init__(self):
        super().__init__()
        self.stack, self.text, self.scripts, self.images = [], "", 0, 0

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "href", "srcset") or value.startswith(IMAGES), (tag, name, value)
        self.scripts += tag == "script"
        self.images += tag == "img"
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.stack and self.stack[-1] == tag, (self.stack, tag)
            self.stack.pop()

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("script", "style"):
            self.text += data


def texts(value):
    """All strings of DATA, names among them."""
    if isinstance(value, dict):
        value = list(value) + list(value.values())
    if isinstance(value, list):
        return [text for v in value for text in texts(v)]
    return [value] if isinstance(value, str) else []


def load(path):
    """DATA, with "items": those of all sections, and "static": the text that is seen without the viewer."""
    raw = pathlib.Path(path).read_bytes().decode()
    bad = [c for c in raw if ord(c) < 32 and c != "\n" or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E]
    assert not bad, bad
    page = Static()
    page.feed(raw)
    assert not page.stack and page.scripts == 2, (page.stack, page.scripts)
    assert "Content-Security-Policy" in raw and "url(" not in raw and "@import" not in raw
    script = re.findall(r"<script>(.*?)</script>", raw, re.S)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in raw, "browsers refuse the viewer"
    data = json.loads(re.search(r'id="ccstream-page">(.*?)</script>', raw, re.S).group(1))
    assert data["format"] == 1 and data["title"] in page.text
    for text in texts(data):
        assert not [c for c in text if ord(c) < 32 and c not in "\n\t"], text
    data["items"] = [item for section in data["sections"] for item in section["items"]]
    data["static"] = page.text
    return data


def figures(data):
    return [i for i in data["items"] if i["kind"] in ("lines", "scatter", "bars", "area", "histogram", "ridges", "map")]


def images(data, title=None):
    return [image for i in data["items"] if i["kind"] == "images" and title in (None, i.get("title")) for image in i["items"]]


class Browser:
    def __init__(self, program, folder):
        def high(fd): # out of the way of 3 and 4, where Chromium expects the pipes
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
        read_here, write_there = map(high, os.pipe())
        read_there, write_here = map(high, os.pipe())

        def pipes():
            os.dup2(read_there, 3)
            os.dup2(write_there, 4)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--user-data-dir=" + folder, "--remote-debugging-pipe", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(read_there)
        os.close(write_there)
        self.input, self.output, self.waiting, self.events, self.count, self.session = read_here, write_here, b"", [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def receive(self):
        while b"\0" not in self.waiting:
            data = os.read(self.input, 1 << 20)
            assert data, "Chromium has ended"
            self.waiting += data
        message, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path, width):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())


# Opens what is closed, waits for figures, points at each of them.
LOOK = """(async () => {
  document.querySelectorAll("details").forEach((e) => { e.open = true; });
  for (let i = 0; i < 3; i++) await new Promise((done) => setTimeout(() => requestAnimationFrame(done), 30));
  const plots = [...document.querySelectorAll(".plot")].filter((e) => e.querySelector("svg"));
  let silent = 0;
  for (const plot of plots) {
    const box = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
    silent += plot.querySelector(".tip").textContent === "";
  }
  const inside = (e) => e.closest(".scroll") && !e.matches(".scroll");
  const wide = [...document.querySelectorAll("body, body *")].filter((e) => !inside(e) && e.getBoundingClientRect().right > innerWidth + 0.5);
  const broken = [...document.images].filter((e) => e.complete && e.naturalWidth === 0);
  return { text: document.body.innerText, figures: plots.length, silent, broken: broken.length, tables: document.querySelectorAll("table").length,
    wide: wide.map((e) => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)).slice(0, 5),
    across: document.documentElement.scrollWidth - innerWidth };
})()"""


def browse(pages):
    program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    if program is None:
        print("skipped: no chromium")
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            for path, wanted in pages:
                for width in (400, 1400):
                    browser.open(path, width)
                    seen = browser.run(LOOK)
                    print(seen.pop("text"))
                    said = [e["params"] for e in browser.events
                            if e.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]
                    assert not said, (path, width, said)
                    assert not seen["wide"] and seen["across"] <= 0, (path, width, seen)
                    assert not seen["broken"] and not seen["silent"], (path, width, seen)
                    assert seen["figures"] == int(wanted), (path, width, seen)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "data":
        print(json.dumps(load(sys.argv[2]), ensure_ascii=False))
    else:
        sys.exit(browse(zip(sys.argv[2::2], sys.argv[3::2])))
