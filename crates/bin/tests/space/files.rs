//! Files that libnbd's programs copy.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use knee_random::Random;

/// A file that the test's end removes.
pub(super) struct Image(PathBuf);

impl Image {
    /// A name for a file that is not there yet.
    pub(super) fn absent() -> Image {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-space-{}-{number}.img", std::process::id());
        Image(std::env::temp_dir().join(name))
    }

    /// A file of random bytes.
    pub(super) fn random(bytes: usize) -> Image {
        let image = Image::absent();
        std::fs::write(&image.0, random(bytes)).unwrap();
        image
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn content(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // It may be absent.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Bytes that no mistake repeats: no two aligned words are equal.
pub(super) fn random(bytes: usize) -> Vec<u8> {
    let mut random = Random::stream(24, 0);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes());
    words.take(bytes).collect()
}
