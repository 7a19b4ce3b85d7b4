# Needs nothing but bash. An option's value follows it as a word or after "=".
END {
    name = program
    gsub(/-/, "_", name)
    print "# Completion of " program ", made from its --help."
    print "_" name "() {"
    print "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= options= i"
    print "    [ \"$cur\" != = ] || cur="
    print "    [ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]}"
    names = ""
    for (i = 1; i <= commands; i++) {
        names = names ((i > 1) ? " " : "") command[i]
    }
    if (names != "") {
        list = names
        gsub(/ /, " | ", list)
        print "    case ${COMP_WORDS[1]} in"
        print "    " list ") [ \"$COMP_CWORD\" -lt 2 ] || command=${COMP_WORDS[1]} ;;"
        print "    esac"
    }
    print "    case $command in"
    for (i = commands; i >= 0; i--) {
        printf "    %s) options='", (i > 0 ? command[i] : "*")
        for (k = 1; k <= options[i]; k++) {
            printf "%s--%s%s", (k > 1 ? " " : ""), long[i, k], (letter[i, k] != "" ? " -" letter[i, k] : "")
        }
        print "' ;;"
    }
    print "    esac"
    print "    case $command,$prev in"
    for (i = commands; i >= 0; i--) {
        for (k = 1; k <= options[i]; k++) {
            if (metavar[i, k] != "") {
                at = command[i] ","
                printf "    %s--%s%s) ", at, long[i, k], (letter[i, k] != "" ? " | " at "-" letter[i, k] : "")
                if (choices[i, k] != "") {
                    print "COMPREPLY=($(compgen -W '" choices[i, k] "' -- \"$cur\")) ;;"
                } else if (takes_file(metavar[i, k])) {
                    print "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;"
                } else {
                    print "COMPREPLY=() ;;"
                }
            }
        }
    }
    print "    *)"
    print "        case $cur in"
    print "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;"
    print "        *)"
    print "            compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
    if (names != "") {
        print "            [ \"$COMP_CWORD\" -gt 1 ] || COMPREPLY+=($(compgen -W '" names "' -- \"$cur\"))"
    }
    print "            ;;"
    print "        esac"
    print "        ;;"
    print "    esac"
    print "}"
    print "complete -F _" name " " program
}
