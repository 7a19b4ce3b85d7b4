function quoted(s) {
    gsub(/[\\']/, "\\\\&", s)
    return "'" s "'"
}
END {
    print "# Completion of " program ", made from its --help."
    for (i = 1; i <= commands; i++) {
        print "complete -c " program " -n __fish_use_subcommand -a " command[i] " -d " quoted(about[i])
    }
    for (i = 0; i <= commands; i++) {
        when = ""
        if (commands > 0) {
            when = i == 0 ? " -n __fish_use_subcommand" : " -n '__fish_seen_subcommand_from " command[i] "'"
        }
        for (k = 1; k <= options[i]; k++) {
            line = "complete -c " program when " -l " long[i, k]
            line = line (letter[i, k] != "" ? " -s " letter[i, k] : "")
            if (choices[i, k] != "") {
                line = line " -x -a " quoted(choices[i, k])
            } else if (metavar[i, k] != "") {
                line = line (takes_file(metavar[i, k]) ? " -r -F" : " -x")
            }
            print line " -d " quoted(help[i, k])
        }
    }
}
