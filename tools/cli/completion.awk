# Records of help_records.awk to arrays, for completion_SHELL.awk, which prints them in its END:
#
#   commands, command[i], about[i]       subcommands from 1 on; 0 is the program itself, ""
#   options[i], with k from 1 on:
#     long[i, k], letter[i, k]           names; letter may be ""
#     metavar[i, k]                      "" for a flag
#     choices[i, k]                      separated by spaces; "" without
#     help[i, k]                         its first sentence
BEGIN {
    FS = "\t"
    i = -1
}
$1 == "name" {
    i++
    commands = i
    command[i] = $2 == program ? "" : substr($2, length(program) + 2)
    about[i] = first_sentence($3)
}
$1 == "option" {
    k = ++options[i]
    split($2, words, " ")
    at = 1
    letter[i, k] = ""
    if (words[1] ~ /^-.,$/) {
        letter[i, k] = substr(words[1], 2, 1)
        at = 2
    }
    long[i, k] = substr(words[at], 3)
    metavar[i, k] = index($2, words[at] " ") ? substr($2, index($2, words[at] " ") + length(words[at]) + 1) : ""
    choices[i, k] = ""
    if (match($3, /\[[^ ,\]]*\|[^ ,\]]*/) || match($3, /\[([^ ,\]]*\| ?)+[^ ,\]]*/)) {
        choices[i, k] = substr($3, RSTART + 1, RLENGTH - 1)
        gsub(/\| */, " ", choices[i, k])
    }
    help[i, k] = first_sentence($3)
}
function first_sentence(s, end) {
    sub(/ \[[^]]*\]$/, "", s)
    end = match(s, /[;.:] /)
    return end > 0 ? substr(s, 1, end - 1) : s
}
function takes_file(value) {
    return value ~ /^(DIR|RUN|FILE|PREFIX|CHECKPOINT|TAR|SOURCE|PATH|FOLDER)/
}
