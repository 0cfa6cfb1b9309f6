//! What a worker and the repair process tell each other. A message is one packet of a channel, about one record.

/// Length of a message.
pub const MESSAGE_LEN: usize = 8;

/// What a message is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Worker: take this connection out of the kernel. With its descriptor.
    Rest,
    /// Worker: make it into a socket, because there is something to send.
    Wake,
    /// Worker, to [`Subject::Recall`]: with the descriptor, if it has come and does not speak yet. Otherwise
    /// [`Detail::Done`] means that it does, or has ended, and [`Detail::Busy`] that none has come.
    Recalled,
    /// The connection rests ([`Detail::Done`]), or stays awake.
    Rested,
    /// Here is the descriptor of a connection that wakes. Its socket is still mute.
    Awake,
    /// The socket of the last [`Subject::Awake`] about this record speaks.
    Go,
    /// The connection is over: the peer has reset it, or is [`Detail::Silent`].
    Gone,
    /// This process is new and found the record waking: what does the worker have?
    Recall,
    /// Worker: the connection is over, and nothing is sent for it. Also the answer to [`Subject::Gone`].
    Forget,
    /// Worker: answer when everything before this is done. In place of a record a number, which the answer repeats.
    Sync,
    /// Everything before the [`Subject::Sync`] with this number is done, or was lost with a predecessor.
    Synced,
    /// This process is new. A worker sends [`Subject::Sync`], and repeats afterwards what had no answer.
    Begun,
    /// Worker: packets may wake connections until this many in all, in place of a record, have woken since the last
    /// [`Subject::Sync`], by packets or by [`Subject::Wake`]. Before the first such message none wakes by a packet.
    Room,
    /// A packet would wake the connection, but the worker has no room for it. Its sender will repeat it.
    Waits,
}

const SUBJECTS: [Subject; 14] = [
    Subject::Rest,
    Subject::Wake,
    Subject::Recalled,
    Subject::Rested,
    Subject::Awake,
    Subject::Go,
    Subject::Gone,
    Subject::Recall,
    Subject::Forget,
    Subject::Sync,
    Subject::Synced,
    Subject::Begun,
    Subject::Room,
    Subject::Waits,
];

/// The outcome in [`Subject::Rested`] and [`Subject::Recalled`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// It was done.
    Done,
    /// Not now: the connection is not quiet. Later it may be.
    Busy,
    /// Never: this connection cannot rest. In [`Subject::Gone`]: it could not be made into a socket any more.
    Unable,
    /// Not now: the table is full, or the record is in use.
    NoRoom,
    /// In [`Subject::Gone`]: the peer does not answer.
    Silent,
}

const DETAILS: [Detail; 5] = [
    Detail::Done,
    Detail::Busy,
    Detail::Unable,
    Detail::NoRoom,
    Detail::Silent,
];

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is about.
    pub subject: Subject,
    /// The outcome.
    pub detail: Detail,
    /// The record's number.
    pub record: u32,
}

impl Message {
    /// A message without an outcome.
    pub fn new(subject: Subject, record: u32) -> Message {
        Message {
            subject,
            detail: Detail::Done,
            record,
        }
    }

    /// Returns its bytes.
    pub fn to_bytes(self) -> [u8; MESSAGE_LEN] {
        let [a, b, c, d] = self.record.to_le_bytes();
        [self.subject as u8, self.detail as u8, 0, 0, a, b, c, d]
    }

    /// Reads a message. `None`: it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Message> {
        let [subject, detail, 0, 0, a, b, c, d] = *bytes else {
            return None;
        };
        Some(Message {
            subject: *SUBJECTS.get(usize::from(subject))?,
            detail: *DETAILS.get(usize::from(detail))?,
            record: u32::from_le_bytes([a, b, c, d]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        for subject in SUBJECTS {
            for detail in DETAILS {
                let message = Message {
                    subject,
                    detail,
                    record: 0x0102_0304,
                };
                assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
            }
        }
        for bytes in [
            &[][..],
            &[14, 0, 0, 0, 0, 0, 0, 0],
            &[0, 5, 0, 0, 0, 0, 0, 0],
            &[0; 9],
        ] {
            assert_eq!(Message::from_bytes(bytes), None);
        }
    }
}
