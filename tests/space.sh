#!/bin/sh
# A file system and fio over knee-space, at length: tests/space.sh target/release
set -eu

space=$1/knee-space
for program in nbdfuse fio mkfs.ext4 e2fsck; do
    PATH="$PATH:/usr/sbin:/sbin" command -v $program >/dev/null || {
        echo "space.sh: $program is missing: apt-get install libnbd-bin fio e2fsprogs" >&2
        exit 1
    }
done
PATH="$PATH:/usr/sbin:/sbin"
sources=$(dirname "$0")/../crates
files=$(mktemp -d)
started=""
end() {
    umount "$files/disk" 2>/dev/null || true
    fusermount3 -u "$files/raw" 2>/dev/null || true
    # shellcheck disable=SC2086  # a list of processes
    kill $started 2>/dev/null || true
    rm -rf "$files"
}
trap end EXIT

first=18701
stores=""
for number in 1 2 3; do
    "$space" store --listen 127.0.0.1:$((first + number)) --bytes 256M --stats none >"$files/store-$number" &
    started="$started $!"
    stores="$stores 127.0.0.1:$((first + number))=256M"
done
# shellcheck disable=SC2086  # a list of stores
"$space" manager --listen 127.0.0.1:$first --store $stores --layout shift --stats none >"$files/manager" &
started="$started $!"
until grep -q ready "$files/manager"; do sleep 0.1; done
uri=nbd://127.0.0.1:$first

# 64 clients, each with its own addresses, check each byte that they wrote.
fio --name=verify --ioengine=nbd --uri=$uri --rw=randrw --bsrange=512-256k --size=8M --offset_increment=8M \
    --numjobs=64 --iodepth=8 --loops="${LOOPS:-20}" --verify=crc32c --do_verify=1 --verify_state_save=0 \
    --group_reporting --output="$files/fio"
grep -q 'err= 0' "$files/fio"

# The same space as a disk with a file system. Root may mount it.
mkdir "$files/raw" "$files/disk"
nbdfuse "$files/raw" $uri &
started="$started $!"
until [ -e "$files/raw/nbd" ]; do sleep 0.1; done
mkfs.ext4 -q -F "$files/raw/nbd"
mount -o loop "$files/raw/nbd" "$files/disk"
cp -r "$sources" "$files/disk/copy"
sync -f "$files/disk"
umount "$files/disk"
e2fsck -fn "$files/raw/nbd"
mount -o loop "$files/raw/nbd" "$files/disk"
diff -r "$sources" "$files/disk/copy"
echo "space.sh: no difference"
