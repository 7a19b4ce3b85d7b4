# last.sh PROGRAM WORD...: runs it without options that a later word repeats, --data excepted: a test changes a common
# command line with it.
words=("$@")
kept=()
for ((i = 0; i < $#; i++)); do
    name=${words[i]%%=*}
    later=" ${words[*]:i+1}"
    if [[ $name == --[a-z]* && $name != --data && ("$later " == *" $name "* || $later == *" $name="*) ]]; then
        [[ ${words[i]} == *=* || ${words[i + 1]} == -* ]] || i=$((i + 1))
    else
        kept+=("${words[i]}")
    fi
done
exec "${kept[@]}"
