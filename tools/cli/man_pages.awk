# Records of help_records.awk to a page OUT/NAME.1 for every command, in the macros of man(7).
# Variables: out, version, date.
function text(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    return s ~ /^[.']/ ? "\\&" s : s
}
function put(line) {
    print line >file
}
function fill(s, words, count, i, line) { # lines of at most 80 bytes, which man(1) joins; \& is for one space after a sentence
    count = split(s, words, / /)
    line = words[1]
    for (i = 2; i <= count; i++) {
        if (length(text(line " " words[i])) > 78) {
            put(text(line) (line ~ /[.?!)]$/ ? "\\&" : ""))
            line = words[i]
        } else {
            line = line " " words[i]
        }
    }
    put(text(line))
}
BEGIN {
    FS = "\t"
}
$1 == "name" {
    if (file != "") {
        finish()
    }
    page = $2
    gsub(/ /, "-", page)
    file = out "/" page ".1"
    pages[++count] = page
    section = ""
    put(".TH \"" toupper(page) "\" \"1\" \"" date "\" \"ccstream " version "\" \"ccstream\"")
    put(".SH NAME")
    fill(page " - " $3)
    put(".SH SYNOPSIS")
    put(".nf")
    next
}
$1 == "usage" {
    put(text($3))
    next
}
section == "" { # after the synopsis
    put(".fi")
    section = "-"
}
$1 == "section" {
    section = $2
    put(".SH " toupper(text($2)))
    if ($2 == "Examples") {
        put(".nf")
    }
    next
}
$1 == "option" || $1 == "entry" {
    put(".TP")
    put("\\fB" text($2) "\\fR")
    fill($3)
    next
}
$1 == "text" {
    put(notes[page]++ ? ".PP" : ".SH NOTES")
    fill($3)
    next
}
$1 == "example" {
    put(text($3))
}
function finish(i) {
    if (section == "Examples") {
        put(".fi")
    }
    if (count > 1) {
        put(".SH SEE ALSO")
        put("\\fB" text(pages[1]) "\\fR(1)")
    }
    close(file)
}
END {
    finish()
}
