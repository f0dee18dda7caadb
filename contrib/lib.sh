# shellcheck shell=bash
# contrib/lib.sh: what the commands in contrib/ share. Sourced, never run.
#
# Gives: ROOT (the checkout), BERTH_CACHE (what may be kept between runs), saying and failing, waiting for a
# condition with a deadline, and asking a container engine over its Unix socket with nothing but curl.
# Does not start or install anything by itself. Functions end with the status that counts: callers run them where `set -e` is off.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BERTH_CACHE=${BERTH_CACHE:-${HOME:-/root}/.cache/berth}
# The name under which every script and test finds the sandbox image made by sandbox-images/build-from-debian.
BERTH_IMAGE=${BERTH_IMAGE:-berth-python:latest}
# Debian keeps daemons here, and a user's PATH may not.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export ROOT BERTH_CACHE BERTH_IMAGE PATH

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { warn "$*"; exit 1; }

need_root() { [ "$(id -u)" -eq 0 ] || die "run this as root: it installs packages and starts a container engine"; }

# Milliseconds since an arbitrary moment; only differences mean something.
now_ms() {
    local up
    read -r up _ </proc/uptime
    echo $((10#${up%.*} * 1000 + 10#${up#*.} * 10))
}

# wait_for SECONDS COMMAND…: run COMMAND until it succeeds. 1 when the time is over.
wait_for() {
    local deadline=$(($(now_ms) + $1 * 1000))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(now_ms)" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

# One private engine or broker is one process; these ask about it by id only, never by name.
process_alive() { [ -n "${1:-}" ] && [ -d "/proc/$1" ] && ! grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"; }
process_gone() { ! process_alive "$1"; }

# engine_socket URL: the path of a unix:// address; anything else is refused (a broker on TCP is not ours to drive).
engine_socket() {
    case $1 in
    unix://*) printf '%s\n' "${1#unix://}" ;;
    /*) printf '%s\n' "$1" ;;
    *) die "DOCKER_HOST=$1: only unix:// sockets are supported" ;;
    esac
}

# engine_call SOCKET METHOD PATH [curl arguments…]: the body on stdout; fails on any status over 399.
engine_call() {
    local socket=$1 method=$2 path=$3
    shift 3
    curl -sS --fail --unix-socket "$socket" -X "$method" "$@" "http://engine$path"
}

engine_answers() { [ -S "$1" ] && curl -s --fail -m 2 -o /dev/null --unix-socket "$1" http://engine/_ping; }
engine_has_image() { curl -s --fail -m 10 -o /dev/null --unix-socket "$1" "http://engine/images/$2/json"; }

# Print the socket of an engine that answers: DOCKER_HOST when set (and then no other), else the usual places. 1 when none does.
engine_find() {
    local socket
    if [ -n "${DOCKER_HOST:-}" ]; then
        socket=$(engine_socket "$DOCKER_HOST")
        engine_answers "$socket" && printf '%s\n' "$socket"
        return
    fi
    for socket in /var/run/docker.sock /run/podman/podman.sock; do
        if engine_answers "$socket"; then
            printf '%s\n' "$socket"
            return 0
        fi
    done
    return 1
}

# A python virtual environment that holds exactly what the file of requirements names; made again when the file changes.
# python_venv DIR REQUIREMENTS
python_venv() {
    local dir=$1 requirements=$2 python=/usr/bin/python3
    [ -x "$python" ] || python=python3
    cmp -s "$requirements" "$dir/requirements.installed" && [ -x "$dir/bin/python" ] && return 0
    rm -rf "$dir"
    mkdir -p "$(dirname "$dir")" &&
        "$python" -m venv "$dir" &&
        "$dir/bin/pip" install -q --disable-pip-version-check -r "$requirements" &&
        cp "$requirements" "$dir/requirements.installed"
}

# The sandbox image, imported into the engine at SOCKET unless it is there.
ensure_image() {
    engine_has_image "$1" "$BERTH_IMAGE" || "$ROOT/sandbox-images/build-from-debian" --engine "$1"
}

# build_berth DIR [configure arguments…]: an out-of-tree build of this checkout; what is out of date decides make itself.
build_berth() {
    local dir=$1
    shift
    [ -x "$ROOT/configure" ] || (cd "$ROOT" && autoreconf -i) || return 1
    mkdir -p "$dir" || return 1
    if [ ! -f "$dir/config.status" ] || [ "$(cat "$dir/configured-with" 2>/dev/null)" != "$*" ]; then
        (cd "$dir" && "$ROOT/configure" -q "$@") || return 1
        printf '%s\n' "$*" >"$dir/configured-with"
    fi
    make -C "$dir" -s -j"$(nproc)"
}
