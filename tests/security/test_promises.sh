# Every promise of SECURITY.md names tests, and each of them exists.
. "$SRC/tests/support/cli.sh"
check() { # check PAGE: prints promises without a test, and tests that do not exist
    sed -n 's/^| *\([0-9][0-9]*\) *| *\(.*\)|[^|]*$/\1|\2/p' "$1" >rows.txt
    sed -n 's/^| *\([0-9][0-9]*\) *|.*| *\([^|]*\) *|$/\1 \2/p' "$1" | tr -d '`,' | while read -r number tests; do
        [ -n "$tests" ] || echo "promise $number names no test"
        for test in $tests; do # a unit test is FOLDERS.UNIT.CASE
            folder=${test%%.*}
            rest=${test#*.}
            unit=${test%.*}
            case $test in
            fuzz.*) file=tests/fuzz/fuzz_$rest.c ;;
            *.*.*) file=tests/unit/$(echo "${unit%.*}" | tr . /)/test_${unit##*.}.c ;;
            *.*) file=tests/$folder/test_$rest.sh ;;
            *) file=none ;;
            esac
            if [ ! -e "$SRC/$file" ]; then
                echo "promise $number: no test $test ($file)"
            elif [ "$unit" != "$folder" ] && ! grep -qF "TEST(${rest##*.})" "$SRC/$file"; then
                echo "promise $number: no case of $test in $file"
            fi
        done
    done
}
page=$SRC/SECURITY.md
check "$page" >wrong.txt
[ ! -s wrong.txt ] || { cat wrong.txt; fail "SECURITY.md"; }
[ "$(wc -l <rows.txt)" -ge 20 ] || fail "only $(wc -l <rows.txt) promises"
[ "$(wc -l <"$page")" -le 120 ] || fail "SECURITY.md is longer than two pages"
printf '| 1 | a promise | `security.nosuch` |\n| 2 | another | |\n' >made.md
check made.md >wrong.txt
lines wrong.txt 2
