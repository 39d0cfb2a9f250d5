//! Frames of `dn-serve/1`: one bidirectional stream carries one placed prompt out and its stream
//! back. Closing the sending side early cancels.
//!
//! An agent's prompt is its last one and a little more. So the target keeps prompts for the asker, who
//! then sends what is new only: on a link between sites a long history would cost more time than its
//! prefill.

use crate::event::EngineLoad;
use crate::hash::PrefixHash;
use crate::plan::Placed;
use crate::prompt::{Prompt, Refusal, StreamItem};
use serde::{Deserialize, Serialize};

/// The request.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ServeRequest {
    /// What.
    pub prompt: Prompt,
    /// Where, with the sources to fetch; the target checks that it is meant.
    pub placed: Placed,
    /// True on the second try: the target may not bounce it again.
    pub bounced: bool,
}

/// Under which number asker and target know a prompt that grows; the asker chooses it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
pub struct Line(pub u64);

/// The beginning of a prompt, as the target keeps it for the asker.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Beginning {
    /// Of which prompt.
    pub line: Line,
    /// So many granules of it; at least 1.
    pub granules: u32,
    /// The name of the last of them, so that a target that keeps another prompt there notices it.
    pub last: PrefixHash,
}

/// The first frame. When its beginning is [unknown](ServeAnswer::Unknown), a second one without a
/// beginning follows on the same stream.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct ServeAsk<R = ServeRequest> {
    /// How the prompt begins: its tokens and names in `request` are those behind it.
    pub beginning: Option<Beginning>,
    /// The number under which the whole prompt is to be kept, in the place of what was kept there.
    pub keep_as: Option<Line>,
    /// The request.
    pub request: R,
}

/// The answer, frame by frame.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum ServeAnswer {
    /// Not here: busier than the chooser believed. Carries the fresh load.
    Bounced(EngineLoad),
    /// Not served.
    Refused(Refusal),
    /// An item of the stream.
    Item(StreamItem),
    /// The beginning is not kept here. Comes first and once, to an ask that has one.
    Unknown,
}
