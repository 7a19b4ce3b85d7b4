function quoted(s) { # inside '...[s]...' of _arguments
    gsub(/[][\\:]/, "\\\\&", s)
    gsub(/'/, "'\\''", s)
    return s
}
function arguments(i, k, value, action) {
    print "    _arguments -s -S \\"
    for (k = 1; k <= options[i]; k++) {
        value = ""
        if (metavar[i, k] != "") {
            action = choices[i, k] != "" ? "(" choices[i, k] ")" : takes_file(metavar[i, k]) ? "_files" : ""
            value = ":" quoted(metavar[i, k]) ":" action
        }
        printf "        "
        if (letter[i, k] != "") {
            printf "'*'{-%s%s,--%s%s}", letter[i, k], (value != "" ? "+" : ""), long[i, k], (value != "" ? "=" : "")
        } else {
            printf "'*--%s%s'", long[i, k], (value != "" ? "=" : "")
        }
        print "'[" quoted(help[i, k]) "]" value "' \\"
    }
    print "        '*:file:_files'"
}
END {
    name = program
    gsub(/-/, "_", name)
    print "#compdef " program
    print "# Completion of " program ", made from its --help."
    if (commands > 0) {
        print "local -a commands=("
        for (i = 1; i <= commands; i++) {
            print "    '" command[i] ":" quoted(about[i]) "'"
        }
        print ")"
        print "if (( CURRENT == 2 )); then"
        print "    _describe -t commands command commands"
        print "fi"
        print "case $words[2] in"
        for (i = 1; i <= commands; i++) {
            print command[i] ")"
            print "    (( CURRENT > 2 )) || return"
            print "    shift words"
            print "    (( CURRENT-- ))"
            arguments(i)
            print "    ;;"
        }
        print "*)"
        arguments(0)
        print "    ;;"
        print "esac"
    } else {
        arguments(0)
    }
}
