#!/bin/sh
# Installs kvtide's node agent under systemd: deploy/install.sh install | uninstall | purge (root). Run it again to upgrade.
#
#   PREFIX   where the agent's own Python environment goes     (/opt/kvtide)
#   DESTDIR  stage everything below this folder: no users are made, nothing is started
#   WHEELS   folder of wheels, kvtide's included: nothing is fetched
#   PYTHON   Python 3.11 or newer                               (python3)
set -eu
umask 022
PREFIX=${PREFIX:-/opt/kvtide} DESTDIR=${DESTDIR:-} WHEELS=${WHEELS:-} PYTHON=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
unit=$DESTDIR/etc/systemd/system/kvtide.service
for folder in "$PREFIX" ${DESTDIR:+"$DESTDIR"}; do
    case $folder in
        /*) ;;
        *) echo "$folder: PREFIX and DESTDIR must be absolute paths" >&2; exit 2 ;;
    esac
done
PREFIX=${PREFIX%/} place=$DESTDIR${PREFIX%/}
# What is at PREFIX is replaced, and removed: an environment of the agent's, never /usr/local or the one that vLLM is in.
if [ -e "$place" ] && [ -n "$(ls -A "$place")" ] &&
    { [ -z "$PREFIX" ] || [ ! -e "$place/pyvenv.cfg" ] || [ ! -e "$place/bin/kvtide" ] || [ -e "$place/bin/vllm" ]; }; then
    echo "$place: is there already, and is not an environment of the agent's alone: give PREFIX a folder of its own" >&2
    exit 2
fi
running() { [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; }

install_() {
    "$PYTHON" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' ||
        { echo "$PYTHON is not Python 3.11 or newer with venv: set PYTHON" >&2; exit 1; }
    # The new environment beside the old one: a failed install leaves that as it was.
    new=$place.new
    rm -rf "$new"
    mkdir -p "$(dirname "$new")"
    "$PYTHON" -m venv "$new"
    if [ -n "$WHEELS" ]; then
        "$new/bin/pip" install -q --no-index --find-links "$WHEELS" 'kvtide[agent]'
    else
        "$new/bin/pip" install -q -c "$here/../constraints/agent.txt" "$here/..[agent]"
    fi
    # Programs name the folder that they were made in.
    grep -rlI "$new" "$new/bin" "$new/pyvenv.cfg" | xargs sed -i "s|$new|$PREFIX|g"

    mkdir -p "$DESTDIR/etc/kvtide" "$DESTDIR/usr/lib/sysusers.d" "$DESTDIR/usr/lib/tmpfiles.d" "$(dirname "$unit")" \
        "$DESTDIR/usr/local/bin" "$DESTDIR/usr/share/kvtide"
    install -m 0644 "$here/systemd/sysusers.conf" "$DESTDIR/usr/lib/sysusers.d/kvtide.conf"
    install -m 0644 "$here/systemd/tmpfiles.conf" "$DESTDIR/usr/lib/tmpfiles.d/kvtide.conf"
    install -m 0644 "$here/systemd/vllm.service.d/kvtide.conf" "$DESTDIR/usr/share/kvtide/vllm-drop-in.conf"
    sed "s|/opt/kvtide|$PREFIX|g" "$here/systemd/kvtide.service" >"$unit"
    chmod 0644 "$unit"
    [ -e "$DESTDIR/etc/kvtide/agent.yaml" ] || install -m 0644 "$here/systemd/agent.yaml" "$DESTDIR/etc/kvtide/agent.yaml"
    if [ -z "$DESTDIR" ]; then
        systemd-sysusers /usr/lib/sysusers.d/kvtide.conf
        "$new/bin/python" -c "import agent.cli.app"  # before the old one goes
    fi
    rm -rf "$place.old"
    [ ! -e "$place" ] || mv "$place" "$place.old"
    mv "$new" "$place"
    rm -rf "$place.old"
    ln -sfn "$PREFIX/bin/kvtide" "$DESTDIR/usr/local/bin/kvtide"
    [ -n "$DESTDIR" ] || systemctl enable -q kvtide.service
    if running; then
        systemd-tmpfiles --create /usr/lib/tmpfiles.d/kvtide.conf
        systemctl daemon-reload
        systemctl restart kvtide.service # comes back when the agent is ready
        systemctl --no-pager --lines=0 status kvtide.service
    fi
    echo "Engines: members of the group kvtide-engines; /usr/share/kvtide/vllm-drop-in.conf is for their unit."
}

uninstall() {
    if running; then systemctl disable -q --now kvtide.service || true; fi
    rm -rf "$unit" "$unit.d" "$place" "$DESTDIR/usr/lib/sysusers.d/kvtide.conf" \
        "$DESTDIR/usr/lib/tmpfiles.d/kvtide.conf" "$DESTDIR/usr/share/kvtide" "$DESTDIR/usr/local/bin/kvtide" \
        "$DESTDIR/etc/systemd/system/multi-user.target.wants/kvtide.service"
    if running; then systemctl daemon-reload; fi
}

case ${1:-} in
    install) install_ ;;
    uninstall)
        uninstall
        echo "Kept: /etc/kvtide, /var/lib/kvtide and the user kvtide; purge removes the folders."
        ;;
    purge)
        uninstall
        rm -rf "$DESTDIR/etc/kvtide" "$DESTDIR/var/lib/kvtide" "$DESTDIR/run/kvtide"
        ;;
    *)
        sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
