//! The store in a small world of fake engines, memories and peers.

use super::*;

mod audit;
mod endings;
mod offloading;
mod onboarding;
mod parts;
mod random;
mod world;
