//! A request on its way to the servers.

use knee_proto::{Request, encode};

/// What a request is written from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// As parsed, with its number: it is sent once to each server and not kept.
    Parsed(&'a Request<'a>, u32),
    /// In canonical form.
    Canonical(&'a [u8]),
}

impl Source<'_> {
    /// Appends the canonical form.
    #[inline]
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match self {
            Source::Parsed(request, number) if request.is_quiet() => {
                encode::request_with_opaque(&request.answered(), number.into(), out);
            }
            Source::Parsed(request, number) => {
                encode::request_with_opaque(request, number.into(), out);
            }
            Source::Canonical(request) => out.extend_from_slice(request),
        }
    }
}
