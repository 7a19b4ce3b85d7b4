#!/bin/bash
# by hand, as root: the steps of a target of Containerfile, with chroot instead of a container engine. Every stage is
# a copy of BASE, the folder of a bare system (debootstrap --variant=minbase), or of the stage that it names.
#
# Usage: tests/run_containerfile.sh TARGET BASE WORK
#   runs FROM, COPY, RUN, USER, WORKDIR and CMD as they stand in the file; WORK/STAGE is what they made
set -eu
target=$1
base=$2
work=$3
cd "$(dirname "$0")/.."
mkdir -p "$work"

# Stages that the target needs, in the order of the file.
needed=" $target "
for _ in 1 2 3; do
    for stage in $(awk -v needed="$needed" '
            $1 == "FROM" { stage = $4; if (index(needed, " " stage " ")) print $2 }
            $1 == "COPY" && index(needed, " " stage " ") && sub(/--from=/, "", $2) { print $2 }' Containerfile); do
        case $stage in
        '$'*) ;;
        *) needed="$needed$stage " ;;
        esac
    done
done

mounted=
unmount() {
    for folder in $mounted; do
        umount "$folder"
    done
    mounted=
}
trap unmount EXIT
user=root
folder=/
inside() { # inside COMMAND...: in the stage, as its user and in its folder
    chroot --userspec="$user" "$work/$stage" /usr/bin/env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        $(env | grep -i '_proxy=' || true) sh -c "cd '$folder' && $*"
}
stage=
while read -r step text; do
    case $step in
    FROM)
        unmount
        stage=${text##* AS }
        from=${text%% AS *}
        user=root
        folder=/
        case $needed in *" $stage "*) ;; *) stage= ;; esac
        [ -n "$stage" ] || continue
        echo "== stage $stage"
        case $from in '$'*) from=$base ;; *) from=$work/$from ;; esac
        rm -rf "${work:?}/$stage"
        cp -a "$from" "$work/$stage"
        mount -t proc proc "$work/$stage/proc"
        mount --bind /dev "$work/$stage/dev"
        mounted="$work/$stage/proc $work/$stage/dev"
        ;;
    '' | ARG) ;;
    *) [ -n "$stage" ] || continue ;;&
    COPY)
        echo "COPY $text"
        case $text in
        --from=*)
            from=${text%% *}
            text=${text#* }
            cp -a "$work/${from#--from=}${text%% *}" "$work/$stage${text##* }"
            ;;
        *)
            mkdir -p "$work/$stage/src"
            git archive HEAD | tar -x -C "$work/$stage${text##* }"
            ;;
        esac
        ;;
    RUN)
        echo "RUN $text"
        inside "$text" >"$work/$stage.log" 2>&1 || {
            tail -n 20 "$work/$stage.log"
            echo "failed: $text"
            exit 1
        }
        ;;
    USER) user=$text ;;
    WORKDIR) folder=$text ;;
    CMD)
        echo "CMD $text"
        inside "id -un; pwd; $(tr -d '[],"' <<<"$text")"
        ;;
    esac
    [ "$stage" != "$target" ] || [ "$step" != CMD ] || unmount
done < <(sed 's/#.*//' Containerfile)
