//! Hearing one's own identity from somewhere else.

use crate::door::Out;
use crate::machine::Gossip;
use protocol::id::Incarnation;
use protocol::time::{Span, Time};

/// New heartbeats of another life, and the time they must span, that show that it runs now.
/// Those of an earlier life that the topic held back come in one burst.
const LIVE_BEATS: u32 = 3;
const LIVE_SPAN: Span = Span::millis(1500);

/// Another life of this identity, as heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    incarnation: Incarnation,
    beat: u64,
    beats: u32,
    since: Time,
}

/// What is known of other lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Echoes {
    jumped_past: u64,
    told_twin: bool,
    last: Option<Echo>,
}

impl Gossip {
    /// Judges a genuine frame of this identity in another life.
    ///
    /// An equal counter with another nonce is a twin at once. A higher counter is a past that this
    /// disk forgot: jump past it. Any other life whose heartbeats keep growing beside this one is
    /// a twin too.
    pub(crate) fn echo(
        &mut self,
        now: Time,
        theirs: Incarnation,
        beat: Option<u64>,
        out: &mut Vec<Out>,
    ) {
        let ours = self.own.incarnation();
        if theirs == ours {
            return;
        }
        let live = beat.is_some_and(|beat| self.keeps_beating(now, theirs, beat));
        if theirs.counter == ours.counter || live {
            if !self.echoes.told_twin {
                self.echoes.told_twin = true;
                out.push(Out::Twin { ours, theirs });
            }
        } else if theirs.counter > ours.counter && theirs.counter > self.echoes.jumped_past {
            self.echoes.jumped_past = theirs.counter;
            out.push(Out::JumpPast(theirs.counter));
        }
    }

    fn keeps_beating(&mut self, now: Time, incarnation: Incarnation, beat: u64) -> bool {
        match &mut self.echoes.last {
            Some(echo) if echo.incarnation == incarnation => {
                if beat > echo.beat {
                    echo.beat = beat;
                    echo.beats += 1;
                }
                echo.beats >= LIVE_BEATS && now.since(echo.since) >= LIVE_SPAN
            }
            other => {
                *other = Some(Echo { incarnation, beat, beats: 1, since: now });
                false
            }
        }
    }
}
