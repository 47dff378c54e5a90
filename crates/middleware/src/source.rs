//! The source of a request for the servers.

use knee_proto::{Request, encode};

/// The form from which a request is written.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The parsed request, with its number: it is sent once to each server and not kept.
    Parsed(&'a Request<'a>, u32),
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
