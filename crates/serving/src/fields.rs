//! The fields of a message, counted as its bytes come: what it is decoded to may be a hundred times
//! as large as its bytes, and must not be made before there is room for it.

/// A prefix of gRPC: whether the message is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Counts the outermost fields of messages that come in parts, each behind its prefix. Of what is no
/// message of protocol buffers it counts something: that is refused where it is decoded.
#[derive(Debug)]
pub(crate) struct Fields {
    next: Next,
    /// Bytes that the message still has.
    left: usize,
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// A prefix, of which so many bytes came.
    Prefix(usize),
    /// A number in bytes of seven bits, of which some came.
    Number { number: u64, shift: u32, of: Of },
    /// So many bytes of a value, and then a field.
    Value(u64),
}

/// What a number is.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// The number and type of a field.
    Key,
    /// The length of its value.
    Length,
    /// Its value.
    Value,
}

impl Next {
    fn number(of: Of) -> Next {
        Next::Number { number: 0, shift: 0, of }
    }
}

impl Default for Fields {
    fn default() -> Fields {
        Fields { next: Next::Prefix(0), left: 0 }
    }
}

impl Fields {
    /// Takes the next part; returns how many fields begin in it.
    pub(crate) fn count(&mut self, mut part: &[u8]) -> usize {
        let mut fields = 0;
        while let [byte, rest @ ..] = part {
            if let Next::Prefix(came) = self.next {
                // The first byte is no part of the length.
                self.left = if came == 0 { 0 } else { self.left << 8 | usize::from(*byte) };
                self.next = Next::Prefix(came + 1);
                part = rest;
                if came + 1 == PREFIX_BYTES {
                    self.next = Next::number(Of::Key);
                    self.end_if_over();
                }
                continue;
            }
            let passed = match self.next {
                Next::Value(bytes) => {
                    let passed = part.len().min(self.left).min(bytes as usize);
                    self.next = match bytes - passed as u64 {
                        0 => Next::number(Of::Key),
                        rest => Next::Value(rest),
                    };
                    passed
                }
                Next::Number { number, shift, of } => {
                    let begins = shift == 0 && matches!(of, Of::Key);
                    fields += usize::from(begins);
                    let bits = u64::from(byte & 0x7f);
                    let number = number | bits.checked_shl(shift).unwrap_or(0);
                    self.next = match byte & 0x80 {
                        0 => behind(of, number),
                        _ => Next::Number { number, shift: shift.saturating_add(7), of },
                    };
                    1
                }
                Next::Prefix(_) => 0,
            };
            part = &part[passed..];
            self.left -= passed;
            self.end_if_over();
        }
        fields
    }

    /// Behind a message comes another one, if anything.
    fn end_if_over(&mut self) {
        if self.left == 0 {
            self.next = Next::Prefix(0);
        }
    }
}

/// What comes behind a number.
fn behind(of: Of, number: u64) -> Next {
    match (of, number & 7) {
        (Of::Key, 0) => Next::number(Of::Value),
        (Of::Key, 1) => Next::Value(8),
        (Of::Key, 2) => Next::number(Of::Length),
        (Of::Key, 5) => Next::Value(4),
        (Of::Length, _) if number > 0 => Next::Value(number),
        // Groups have no length: their fields count as others do.
        _ => Next::number(Of::Key),
    }
}

#[cfg(test)]
mod tests {
    use knee_rpc::Message;
    use knee_rpc::kv::{BulkPutRequest, Change, PutRequest, RequestId, Value, change};
    use proptest::prelude::*;

    use super::*;

    fn sent(message: &impl Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        [&[0], &(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
    }

    proptest! {
        #[test]
        fn each_change_of_a_bulk_put_is_counted_however_it_is_cut(
            values in prop::collection::vec(prop::option::of(0..300_usize), 0..40),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let changes = values.iter().map(|bytes| match bytes {
                // Two bytes.
                None => Change::default(),
                Some(bytes) => Change {
                    key: vec![7; bytes / 2].into(),
                    action: Some(change::Action::Put(Value {
                        value: vec![8; *bytes].into(),
                        ..Value::default()
                    })),
                    condition: None,
                },
            });
            let request = Some(RequestId { client: u64::MAX, number: 300 });
            let bulk = BulkPutRequest { changes: changes.collect(), request };
            // One comes behind another.
            let put = PutRequest { if_version: Some(1 << 40), ..PutRequest::default() };
            let bytes = [sent(&put), sent(&PutRequest::default()), sent(&bulk)].concat();
            let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            ends.sort_unstable();
            ends.push(bytes.len());
            let (mut fields, mut from, mut counted) = (Fields::default(), 0, 0);
            for end in ends {
                counted += fields.count(&bytes[from..end]);
                from = end;
            }
            prop_assert_eq!(counted, 1 + values.len() + 1);
        }

        #[test]
        fn anything_may_come(parts in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let mut fields = Fields::default();
            for part in parts {
                prop_assert!(fields.count(&part) <= part.len());
            }
        }
    }
}
