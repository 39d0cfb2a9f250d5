//! Frames of `dn-serve/1`: one bidirectional stream carries one placed prompt out and its stream
//! back. Closing the sending side early cancels.

use crate::event::EngineLoad;
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

/// The answer, frame by frame.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub enum ServeAnswer {
    /// Not here: busier than the chooser believed. Carries the fresh load.
    Bounced(EngineLoad),
    /// Not served.
    Refused(Refusal),
    /// An item of the stream.
    Item(StreamItem),
}
