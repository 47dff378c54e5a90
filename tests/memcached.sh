#!/bin/sh
# Builds memcached from its sources for the tests, and prints the name of the program.
# MEMCACHED_SOURCE is a checkout or an unpacked tarball; it stays as it is.
#
#     KNEE_MEMCACHED=$(MEMCACHED_SOURCE=~/memcached tests/memcached.sh) make soak
set -eu
: "${MEMCACHED_SOURCE:?names a folder with the sources of memcached}"
folder=$(cd "$(dirname "$0")/.." && pwd)/target/memcached
rm -rf "$folder"
mkdir -p "$folder"
cp -R "$MEMCACHED_SOURCE/." "$folder"
cd "$folder"
{
    [ -x configure ] || ./autogen.sh
    ./configure --disable-dependency-tracking --disable-docs
    make memcached
} >&2
echo "$folder/memcached"
