# The --help of one command as records of three fields, separated by tabs:
#
#   name     ccdump find       purpose
#   usage    a whole line
#   section  title                         of the entries and examples that follow
#   option   "-k, --key GLOB"  what it does, with [choices|..., default x]
#   entry    name              text        of another list
#   text     a paragraph
#   example  a line
function flush() {
    if (kind != "") {
        print kind "\t" left "\t" right
    }
    kind = ""
}
function begin(what, a, b) {
    flush()
    kind = what
    left = a
    right = b
}
function more(text) {
    right = right == "" ? text : right " " text
}
NR == 1 {
    colon = index($0, ": ")
    begin("name", substr($0, 1, colon - 1), substr($0, colon + 2))
    next
}
/^$/ {
    flush()
    section = ""
    next
}
kind == "name" {
    sub(/^ +/, "")
    more($0)
    next
}
/^usage: / || usage_column && /^       [^ ]/ && section == "usage" {
    section = "usage"
    usage_column = 7
    begin("usage", "", substr($0, 8))
    next
}
pending != "" { # a heading if entries follow, else the first line of a paragraph
    if (/^  /) {
        section = substr(pending, 1, length(pending) - 1)
        print "section\t" section "\t"
    } else {
        begin("text", "", pending)
    }
    pending = ""
}
section == "" && kind == "" && /^[^ ].*:$/ {
    pending = $0
    next
}
section == "Examples" {
    begin("example", "", substr($0, 3))
    next
}
section != "" && /^  (-.,|   ) ?--/ {
    gap = match(substr($0, 7), /  +/)
    begin("option", gap ? substr($0, 3, gap + 3) : substr($0, 3), gap ? substr($0, gap + 6 + RLENGTH) : "")
    gsub(/^ +| +$/, "", left)
    next
}
section != "" && /^  [^ ]/ {
    gap = match(substr($0, 3), /  +/)
    begin("entry", gap ? substr($0, 3, gap - 1) : substr($0, 3), gap ? substr($0, gap + 2 + RLENGTH) : "")
    next
}
section != "" {
    sub(/^ +/, "")
    more($0)
    next
}
{
    if (kind != "text") {
        begin("text", "", "")
    }
    more($0)
}
END {
    flush()
}
