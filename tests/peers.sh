#!/bin/sh
# Installs the programs that the tests use as peers, where they are missing and it may; says what to install where it
# may not. With the argument "all", also those of the benchmarks and the soak alone.
set -eu

missing=""
# Debian keeps PostgreSQL's own programs out of PATH, by version.
postgresql=$(printf '%s:' /usr/lib/postgresql/*/bin)
need() { # a command, and Debian's package that has it
    PATH="$PATH:/usr/sbin:/sbin:$postgresql" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need ip iproute2
need memcached memcached
need memccapable libmemcached-tools
need memcslap libmemcached-tools
need nutcracker nutcracker
need initdb postgresql
need pgbench postgresql
need redis-server redis-server
need redis-benchmark redis-tools
need nginx nginx
need wrk wrk
need prometheus-node-exporter prometheus-node-exporter
need nbdcopy libnbd-bin
need chromium chromium
if [ "${1:-}" = all ]; then
    need fio fio
    need nbdkit nbdkit
    need fusermount3 fuse3
    need e2fsck e2fsprogs
fi
[ -n "$missing" ] || exit 0
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')

if ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests need these programs, which are missing here (Debian's package names): $missing" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "The tests need programs that are missing, and this user may not install them. Run:" >&2
    echo "    sudo apt-get install $missing" >&2
    exit 1
fi
echo "installing $missing" >&2
# A package's service must not start: the tests start their own servers, on free ports.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod +x "$policy"
    trap '$as_root rm -f "$policy"' EXIT
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086  # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
