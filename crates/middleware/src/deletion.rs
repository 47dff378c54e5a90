//! The requests that delete what a write may have changed: pure, no sockets.

use knee_proto::{MetaVerb, Status};

use crate::form::Form;

/// Deletes every key.
pub(crate) const FLUSH: &[u8] = b"flush_all\r\n";

/// The deletions for a write with this form, from its canonical command line.
pub(crate) fn deletions(form: Form, request: &[u8]) -> Vec<Vec<u8>> {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ').skip(1);
    match form {
        Form::Done if line.starts_with(b"flush_all") => vec![FLUSH.to_vec()],
        // These change no data.
        Form::Done | Form::Memlimit | Form::Version | Form::Stats => Vec::new(),
        Form::Retrieval(_) => {
            let keys = form.asked(line).map_or(&b""[..], |asked| asked.keys);
            keys.split(|&byte| byte == b' ').map(|key| delete(key, false)).collect()
        }
        Form::Store | Form::Cas | Form::Delete | Form::Arith | Form::Touch | Form::Meta(_) => {
            let Some(key) = words.next() else { return Vec::new() };
            let base64 = matches!(form, Form::Meta(_)) && words.any(|word| word == b"b");
            vec![delete(key, base64)]
        }
    }
}

fn delete(key: &[u8], base64: bool) -> Vec<u8> {
    match key {
        // The answer repeats the opaque, as every answer to a meta command must.
        _ if base64 => [b"md ", key, b" b O0\r\n"].concat(),
        // Versions of memcached read `delete noreply` differently.
        b"noreply" => b"md noreply O0\r\n".to_vec(),
        _ => [b"delete ", key, b"\r\n"].concat(),
    }
}

pub(crate) fn form(deletion: &[u8]) -> Form {
    match deletion {
        FLUSH => Form::Done,
        [b'm', ..] => Form::Meta(MetaVerb::Delete),
        _ => Form::Delete,
    }
}

/// Whether the server has done it: the key is not there.
pub(crate) fn is_done(status: &Status<'_>) -> bool {
    matches!(
        status,
        Status::Deleted | Status::NotFound | Status::MetaDone | Status::MetaNotFound | Status::Ok
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use knee_proto::GetVerb;

    #[test]
    fn write_is_undone_by_deletions_of_its_keys() {
        let rows: [(Form, &str, &[&str]); 10] = [
            (Form::Store, "set a 0 0 1\r\nx\r\n", &["delete a\r\n"]),
            (Form::Cas, "cas a 0 0 1 7\r\nx\r\n", &["delete a\r\n"]),
            (Form::Arith, "incr a 1\r\n", &["delete a\r\n"]),
            (Form::Retrieval(GetVerb::Gat), "gat 10 a bc\r\n", &["delete a\r\n", "delete bc\r\n"]),
            (Form::Meta(MetaVerb::Set), "ms a 1 T0 O5\r\nb\r\n", &["delete a\r\n"]),
            (Form::Meta(MetaVerb::Delete), "md azE= b O5\r\n", &["md azE= b O0\r\n"]),
            (Form::Store, "set noreply 0 0 1\r\nx\r\n", &["md noreply O0\r\n"]),
            (Form::Done, "flush_all 10\r\n", &["flush_all\r\n"]),
            (Form::Done, "verbosity 1\r\n", &[]),
            (Form::Memlimit, "cache_memlimit 64\r\n", &[]),
        ];
        for (form, request, expected) in rows {
            let found = deletions(form, request.as_bytes());
            let expected: Vec<_> = expected.iter().map(|line| line.as_bytes().to_vec()).collect();
            assert_eq!(found, expected, "{request:?}");
        }
    }
}
