//! End-to-end tests on real processes, and tests of the house itself: see `tests/suite`.
