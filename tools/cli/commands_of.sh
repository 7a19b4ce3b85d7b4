# For scripts that have set bin: . tools/cli/commands_of.sh
programs="ccpack ccdump ccstream-train ccstream-eval ccstream-export"
[ ! -x "$bin/ccstream-report" ] || programs="$programs ccstream-report" # where Python is installed
programs="$programs ccbench"
[ ! -x "$bin/ccstudy" ] || programs="$programs ccstudy" # where its headers are, too

commands_of() { # commands_of BIN PROGRAM: its subcommands, from the list that --help has or the words its usage lines name
    "$1/$2" --help | awk -v name="$2" '
        /^Commands:/ { list = 1; next }
        list && /^$/ { list = 0 }
        list { print $1 }
        !list && $0 ~ "^ *(usage: )?" name " [a-z]" { sub("^ *(usage: )?" name " ", ""); print $1 }' | sort -u |
        if [ -x "$1/ccstudy" ]; then cat; else sed '/^suite$/d; /^debias$/d'; fi # of ccstream-eval: these start ccstudy
}
