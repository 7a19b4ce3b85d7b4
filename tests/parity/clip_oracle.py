"""open_clip's tokenizer without torch, and ccstream's through libccstream, for comparisons.

    pip install --no-deps open_clip_torch==3.3.0 && pip install ftfy regex tokenizers

Only tokenizer.py and the file of merges of open_clip_torch are used. ccstream's is reached by ctypes: no
build of the Python package is needed.
"""
import ctypes
import gzip
import importlib.util
import os
import sys
import types


class OpenClip:
    def __init__(self):
        spec = importlib.util.find_spec("open_clip")
        if spec is None:
            raise ImportError("open_clip_torch is not installed")
        path = os.path.join(spec.submodule_search_locations[0], "tokenizer.py")
        self.merges_file = os.path.join(os.path.dirname(path), "bpe_simple_vocab_16e6.txt.gz")
        for name in ("torch", "numpy"):  # imported by tokenizer.py, and not used for ids
            if importlib.util.find_spec(name) is None:
                sys.modules[name] = types.ModuleType(name)
                sys.modules[name].Tensor = sys.modules[name].LongTensor = object
        spec = importlib.util.spec_from_file_location("open_clip_tokenizer", path)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.tokenizer = self.module._tokenizer
        with open(self.merges_file, "rb") as f:
            self.merges = f.read()

    def encode(self, text):
        """Ids of a text, without begin and end, not truncated."""
        return self.tokenizer.encode(text)


class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint64)]


class Ccstream:
    def __init__(self, library, model):
        """`model`: the bytes of a tokenizer's file."""
        lib = self.lib = ctypes.CDLL(library)
        lib.ccs_tokenizer_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
        lib.ccs_tokenizer_encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                                             ctypes.c_uint64, ctypes.c_uint32, ctypes.c_bool, ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        self.error = ctypes.create_string_buffer(4096)
        if lib.ccs_tokenizer_open(ctypes.byref(self.handle), model, len(model), self.error) < 0:
            raise ValueError(self.error.raw)

    def rows(self, texts, max_tokens, clean=False):
        """(ids, lengths): ctypes arrays of len(texts) x max_tokens and len(texts)."""
        encoded = texts if texts and isinstance(texts[0], bytes) else [t.encode() for t in texts]
        views = (Text * len(texts))(*[Text(t, len(t)) for t in encoded])
        ids = (ctypes.c_int32 * (len(texts) * max_tokens))()
        lengths = (ctypes.c_int32 * len(texts))()
        if self.lib.ccs_tokenizer_encode(self.handle, ids, lengths, views, len(texts), max_tokens, clean,
                                         self.error) < 0:
            raise ValueError(self.error.raw)
        return ids, lengths

    def encode_all(self, texts, max_tokens=4096):
        """Ids of each text, without begin and end."""
        ids, lengths = self.rows(texts, max_tokens)
        return [ids[i * max_tokens + 1:i * max_tokens + n - 1] for i, n in enumerate(lengths)]


def hugging_face_clip(merges_gz):
    """Hugging Face's fast CLIP tokenizer, as its tokenizer.json describes it."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    lines = gzip.decompress(merges_gz).decode().split("\n")[1:48895]
    merges = [tuple(line.split()) for line in lines]
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = [chr(b) for b in plain] + [chr(0x100 + i) for i in range(256 - len(plain))]
    names += [n + "</w>" for n in names] + [left + right for left, right in merges]
    names += ["<|startoftext|>", "<|endoftext|>"]
    t = Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, merges, unk_token="<|endoftext|>",
                             continuing_subword_prefix="", end_of_word_suffix="</w>"))
    t.add_special_tokens([AddedToken(n, normalized=True, special=True) for n in names[-2:]])
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 49407), ("<|startoftext|>", 49406), False, False)
    return t
