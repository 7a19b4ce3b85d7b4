# ccstudy toy whole: every cell agrees with an independent version in float64, within three standard errors of the difference.
# not under sanitizers: it computes; the model has unit tests
. "$SRC/tests/support/cli.sh"

expect 0 "$BIN/ccstudy" toy -q --json -o studies
has out.txt '"risk":{"0.2":-0.0808944'
has out.txt '"1":-0.0205771'

# Means of the independent version over 20 sets of pairs (6 from 800 pairs on), as many digits as are given here: tau, n, |L - risk|
# of nuclr, gcl and mle, error terms of nuclr and gcl.
cat >reference.txt <<'EOF'
0.2 25 .042 .062 .034 .0064 .060
0.2 100 .014 .064 .014 .0040 .054
0.2 400 .009 .059 .007 .0016 .057
0.2 1600 .004 .060 .003 .0010 .054
1 25 .039 .029 .038 .0022 .052
1 100 .015 .024 .015 .0013 .051
1 400 .009 .011 .009 .0006 .052
1 1600 .003 .015 .004 .0004 .052
EOF
tr '{' '\n' <out.txt | grep '"tau":' | tr -d '}]"' >rows.txt
lines rows.txt 14
awk '
FNR == NR { for (k = 3; k <= 7; k++) reference[$1, $2, k] = $k; next }
{
    count = split($0, fields, ",")
    for (i = 1; i <= count; i++) { split(fields[i], pair, ":"); v[pair[1]] = pair[2] }
    if (!((v["tau"], v["n"], 3) in reference)) next
    names = split("nuclr gcl mle error_nuclr error_gcl", name, " ")
    for (k = 1; k <= names; k++) {
        their_repeats = v["n"] >= 800 ? 6 : 20
        error = v[name[k] "_se"] * sqrt(1 + v["repeats"] / their_repeats)
        distance = (v[name[k]] - reference[v["tau"], v["n"], k + 2]) / error
        cells++
        if (distance > 3 || distance < -3) {
            printf "tau %s, n %s, %s: %s, %.1f standard errors off\n", v["tau"], v["n"], name[k], v[name[k]], distance
            bad = 1
        }
    }
}
END { if (cells != 40) print cells " cells, not 40"; exit bad || cells != 40 }' reference.txt rows.txt || fail "cells differ"

# The claim of the paper: popularity learned from the data correlates with the true one, the more the more pairs there are.
awk -F, '/^tau:0.2,/ { for (i = 1; i <= NF; i++) { split($i, f, ":"); v[f[1]] = f[2] } at[v["n"]] = v["correlation"] }
    END { exit !(at[25] > 0.98 && at[1600] > 0.9997) }' rows.txt || fail "correlations: $(cat rows.txt)"
