//! Who asks: API keys to tenants, and how much each tenant may ask.

use crate::error::{ApiError, Kind};
use axum::http::{HeaderMap, header};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use protocol::id::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

/// Shortest API key in characters.
pub const KEY_MIN: usize = 16;
/// Longest name of a tenant in bytes.
const NAME_MAX: usize = 64;

/// A tenant as an operator writes it down.
#[derive(Clone, Debug)]
pub struct TenantSpec {
    /// Its name, which salts its blocks: tenants share none.
    pub name: String,
    /// Its API keys, each of at least [`KEY_MIN`] characters.
    pub keys: Vec<String>,
    /// Priority of requests that name none.
    pub priority: i32,
    /// Prompt tokens that it may send per minute through this node; `None` is no limit.
    pub prompt_tokens_per_minute: Option<NonZeroU32>,
}

/// Why tenants cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The name is empty, too long, or has other characters than letters, digits, `-`, `_`, `.`.
    Name(String),
    /// Two tenants of one name.
    Twice(String),
    /// A tenant without a key.
    NoKey(String),
    /// A key of this tenant is too short, or has spaces or other characters that headers bear badly.
    BadKey(String),
    /// A key of this tenant belongs to another one, or is there twice.
    SharedKey(String),
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "`{name}` is no name of a tenant: 1 to {NAME_MAX} letters, digits, `-`, `_`, `.`"
            ),
            Self::Twice(name) => write!(f, "there are two tenants `{name}`"),
            Self::NoKey(name) => write!(f, "the tenant `{name}` has no key"),
            Self::BadKey(name) => write!(
                f,
                "a key of the tenant `{name}` is not {KEY_MIN} or more visible ASCII characters"
            ),
            Self::SharedKey(name) => write!(f, "a key of the tenant `{name}` is there twice"),
        }
    }
}

impl std::error::Error for KeyError {}

/// A tenant whose requests are served.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) id: TenantId,
    pub(crate) priority: i32,
    quota: Option<NonZeroU32>,
    limiter: Option<DefaultDirectRateLimiter>,
}

impl Tenant {
    fn new(name: &str, priority: i32, quota: Option<NonZeroU32>) -> Self {
        let limiter = quota.map(|quota| RateLimiter::direct(Quota::per_minute(quota)));
        Self { id: TenantId(name.to_owned()), priority, quota, limiter }
    }

    /// Takes a prompt's tokens out of the tenant's quota. A prompt larger than what a minute
    /// allows counts as a whole minute.
    pub(crate) fn charge(&self, tokens: u32) -> Result<(), ApiError> {
        let (Some(limiter), Some(quota)) = (&self.limiter, self.quota) else { return Ok(()) };
        let Some(tokens) = NonZeroU32::new(tokens.min(quota.get())) else { return Ok(()) };
        match limiter.check_n(tokens) {
            Ok(Err(not_until)) => {
                let wait = not_until.wait_time_from(DefaultClock::default().now());
                let seconds = wait.as_secs().saturating_add(1);
                let message = format!(
                    "the limit of {quota} prompt tokens per minute is reached; try again in \
                     {seconds} s"
                );
                let error = ApiError::new(Kind::RateLimited, message);
                Err(ApiError { retry_after: Some(seconds), ..error })
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// Digest of a key: the keys themselves are not kept.
type KeyDigest = [u8; 32];

fn digest(key: &str) -> KeyDigest {
    *blake3::hash(key.as_bytes()).as_bytes()
}

#[derive(Debug)]
enum Ring {
    /// Everybody is the same tenant.
    Open(Arc<Tenant>),
    Keys(BTreeMap<KeyDigest, Arc<Tenant>>),
}

/// The keys that are good now.
#[derive(Debug)]
pub struct Keys(RwLock<Ring>);

impl Keys {
    /// No keys: all callers are the tenant of this machine.
    pub fn open() -> Self {
        Self(RwLock::new(Ring::Open(Arc::new(Tenant::new(&TenantId::local().0, 0, None)))))
    }

    /// Only these tenants are served from now on. A tenant that was there goes on with what is
    /// left of an unchanged quota.
    ///
    /// # Errors
    /// [`KeyError`]; then the former keys stay good.
    pub fn replace(&self, specs: &[TenantSpec]) -> Result<(), KeyError> {
        let mut ring = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let former: Vec<Arc<Tenant>> = match &*ring {
            Ring::Open(_) => Vec::new(),
            Ring::Keys(keys) => keys.values().cloned().collect(),
        };
        *ring = Ring::Keys(read(specs, &former)?);
        Ok(())
    }

    /// The tenant whose key a request carries, as `Authorization: Bearer` or `x-api-key`.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Arc<Tenant>, ApiError> {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let keys = match &*ring {
            Ring::Open(tenant) => return Ok(tenant.clone()),
            Ring::Keys(keys) => keys,
        };
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let given = [text(header::HeaderName::from_static("x-api-key")), bearer];
        let given: Vec<&str> = given.into_iter().flatten().filter(|key| !key.is_empty()).collect();
        if let Some(tenant) = given.iter().find_map(|key| keys.get(&digest(key))) {
            return Ok(tenant.clone());
        }
        let message = match given.is_empty() {
            true => "an API key is needed: send it as `Authorization: Bearer KEY` or `x-api-key`",
            false => "the API key is not known here",
        };
        Err(ApiError::new(Kind::Unauthorised, message))
    }
}

fn read(
    specs: &[TenantSpec],
    former: &[Arc<Tenant>],
) -> Result<BTreeMap<KeyDigest, Arc<Tenant>>, KeyError> {
    let mut names = BTreeSet::new();
    let mut keys = BTreeMap::new();
    for spec in specs {
        let name = spec.name.as_str();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            return Err(KeyError::Name(name.to_owned()));
        }
        if !names.insert(name) {
            return Err(KeyError::Twice(name.to_owned()));
        }
        if spec.keys.is_empty() {
            return Err(KeyError::NoKey(name.to_owned()));
        }
        let same = |tenant: &&Arc<Tenant>| {
            tenant.id.0 == name
                && tenant.quota == spec.prompt_tokens_per_minute
                && tenant.priority == spec.priority
        };
        let tenant = former.iter().find(same).cloned().unwrap_or_else(|| {
            Arc::new(Tenant::new(name, spec.priority, spec.prompt_tokens_per_minute))
        });
        for key in &spec.keys {
            if key.len() < KEY_MIN || !key.chars().all(|c| c.is_ascii_graphic()) {
                return Err(KeyError::BadKey(name.to_owned()));
            }
            if keys.insert(digest(key), tenant.clone()).is_some() {
                return Err(KeyError::SharedKey(name.to_owned()));
            }
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests;
