//! From a command line to a running node: identity, membership, parts, listeners, tasks.

use crate::cli::{JoinArgs, NodeArgs};
use crate::clock::Clock;
use crate::config::Config;
use crate::fault::Fault;
use crate::files::{read_text, write_secret};
use crate::membership::{KnownMember, Membership};
use protocol::event::Contact;
use protocol::hash::HASH_VERSION;
use protocol::id::{Incarnation, NodeId};
use protocol::sign::Keypair;
use protocol::trust::{JoinToken, LABEL_ISSUER, TokenFields, UnixTime};
use protocol::wire::handshake::{Hello, VERSION, VERSION_MIN};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tiers::{Identity, Records};

mod compose;
mod peer;

/// How long the first token of a cluster is valid, and how many nodes it admits per member.
const FIRST_TOKEN_SECONDS: u64 = 30 * 24 * 3600;
const FIRST_TOKEN_USES: u32 = 256;

/// Random bytes from the system.
pub(crate) fn entropy<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::new(error, "the system gives no random bytes"))?;
    Ok(bytes)
}

/// Reads a typed record.
pub(crate) fn get<T: DeserializeOwned>(
    records: &Records,
    kind: &str,
    key: &[u8],
) -> Result<Option<T>, Fault> {
    let bytes = records.get(kind, key).map_err(record_fault)?;
    bytes.map(|bytes| protocol::wire::decode(&bytes).map_err(record_fault)).transpose()
}

/// Writes a typed record; durable when it returns.
pub(crate) fn put<T: Serialize>(
    records: &Records,
    kind: &str,
    key: &[u8],
    value: &T,
) -> Result<(), Fault> {
    let bytes = protocol::wire::encode(value).map_err(record_fault)?;
    records.put(kind, key, &bytes).map_err(record_fault)
}

fn record_fault(error: impl std::fmt::Display) -> Fault {
    let help =
        "check the disk; a damaged data folder can be moved away, then join the cluster again";
    Fault::new(format!("the records of the data folder: {error}"), help)
}

/// What a data folder holds, opened by this process alone.
pub(crate) struct Home {
    config: Config,
    keypair: Keypair,
    incarnation: Incarnation,
    records: Arc<Records>,
    membership: Option<Membership>,
}

impl Home {
    fn open(args: &NodeArgs) -> Result<Self, Fault> {
        let config = Config::load(args)?;
        crate::logging::start(&config.log)?;
        let dir = &config.node.data_dir;
        let help =
            "choose a folder this user can write with --data-dir; one process uses it at a time";
        std::fs::create_dir_all(dir).map_err(|error| {
            Fault::new(format!("cannot create {}: {error}", dir.display()), help)
        })?;
        let seed = entropy::<32>()?;
        let full = "the disk is full: free some space and start again; nothing is lost";
        let records = Records::open(dir).map_err(|error| {
            let is_full = error.to_string().contains("No space left");
            Fault::new(error, if is_full { full } else { help })
        })?;
        let identity =
            Identity::load_or_create(dir, args.new_identity, move || seed).map_err(|error| {
                Fault::new(error, "see the message; --new-identity gives the folder a new identity")
            })?;
        if args.new_identity {
            records.delete("cluster", b"self").map_err(record_fault)?;
        }
        let nonce = u64::from_le_bytes(entropy::<8>()?);
        let incarnation = records.next_incarnation(nonce).map_err(record_fault)?;
        let membership: Option<Membership> = get(&records, "cluster", b"self")?;
        let keypair = Keypair::from_seed(identity.seed());
        if membership.as_ref().is_some_and(|known| known.cert.node != keypair.node()) {
            return Err(Fault::new(
                format!("{} holds another node's key than its membership", dir.display()),
                "bring the original node.key back, or start with --new-identity and join again",
            ));
        }
        Ok(Self { config, keypair, incarnation, records: Arc::new(records), membership })
    }

    fn node(&self) -> NodeId {
        self.keypair.node()
    }

    /// Where others reach this node.
    fn contact(&self) -> Contact {
        let cluster = &self.config.cluster;
        let addresses = if cluster.advertise.is_empty() {
            vec![cluster.listen]
        } else {
            cluster.advertise.clone()
        };
        Contact {
            cluster: addresses.iter().map(ToString::to_string).collect(),
            http: self.config.http.url(self.config.http.listen),
            site: self.config.node.site.clone(),
        }
    }

    fn save(&self, membership: &Membership) -> Result<(), Fault> {
        put(&self.records, "cluster", b"self", membership)
    }
}

/// What a node says first to other members.
pub(crate) fn hello(membership: &Membership, incarnation: Incarnation, contact: Contact) -> Hello {
    Hello {
        version: VERSION,
        version_min: VERSION_MIN,
        hash_version: HASH_VERSION,
        cluster: membership.cluster(),
        node: membership.cert.node,
        incarnation,
        cert: membership.cert.clone(),
        contact,
    }
}

/// `dynamo-node start`: founds a cluster, or goes on as the member the data folder says.
pub(crate) async fn start(args: &NodeArgs) -> Result<(), Fault> {
    let home = Home::open(args)?;
    let membership = match &home.membership {
        Some(membership) => membership.clone(),
        None => {
            let entropy = [entropy()?, entropy()?, entropy()?];
            let membership = Membership::found(home.node(), entropy);
            home.save(&membership)?;
            tracing::info!(cluster = %membership.cluster(), "founded a cluster");
            membership
        }
    };
    offer_join(&home, &membership)?;
    compose::run(home, membership, Vec::new()).await
}

/// Writes the first join token and says how to use it.
fn offer_join(home: &Home, membership: &Membership) -> Result<(), Fault> {
    let Some(issuing) = membership.issuing() else { return Ok(()) };
    let file = home.config.node.data_dir.join("join-token");
    let addresses = home.contact().cluster;
    let peer = addresses.first().cloned().unwrap_or_default();
    if token_is_stale(&file, membership) {
        let fields = TokenFields {
            cluster: membership.cluster(),
            issuer: membership.issuer,
            serial: u64::from_le_bytes(entropy()?),
            expires: UnixTime(Clock::unix().0 + FIRST_TOKEN_SECONDS),
            uses: FIRST_TOKEN_USES,
            labels: vec![LABEL_ISSUER.into()],
            addresses,
        };
        write_secret(&file, &JoinToken::issue(&issuing, fields).to_text(), true)?;
    }
    tracing::info!(
        "another machine joins with: dynamo-node join {peer} --token-file TOKEN \
         (TOKEN is a copy of {})",
        file.display()
    );
    Ok(())
}

/// True when there is no readable token of this cluster that is valid for another hour.
fn token_is_stale(file: &Path, membership: &Membership) -> bool {
    let text = read_text(file).map(zeroize::Zeroizing::new);
    let token = text.ok().and_then(|text| JoinToken::parse(&text).ok());
    token.is_none_or(|token| {
        let fields = &token.fields;
        fields.expires.0 < Clock::unix().0 + 3600 || fields.issuer != membership.issuer
    })
}

/// `dynamo-node join`: asks a member to be admitted, or goes on as a member.
pub(crate) async fn join(args: &JoinArgs) -> Result<(), Fault> {
    let home = Home::open(&args.node)?;
    let addresses = peer::resolve(&args.peer).await?;
    let now = Clock::unix();
    let membership = match &home.membership {
        Some(known) if now <= known.cert.expires => {
            let token = args.token_file.as_ref().map(|_| peer::token(args)).transpose()?;
            if token.is_some_and(|token| token.fields.issuer != known.issuer) {
                return Err(Fault::new(
                    format!("this data folder belongs to the cluster {}", known.cluster()),
                    "join another cluster with another --data-dir, or with --new-identity",
                ));
            }
            tracing::info!(cluster = %known.cluster(), "already a member; no token is needed");
            known.clone()
        }
        _ => {
            let membership = admission(&home, args, &addresses).await?;
            home.save(&membership)?;
            membership
        }
    };
    compose::run(home, membership, addresses).await
}

/// Proves the token to a member and takes what it gives.
async fn admission(
    home: &Home,
    args: &JoinArgs,
    addresses: &[SocketAddr],
) -> Result<Membership, Fault> {
    let token = peer::token(args)?;
    if token.fields.expires < Clock::unix() {
        return Err(Fault::new(
            "the join token has expired",
            "make a new one on a member: dynamo-node token --out FILE",
        ));
    }
    let mut last = None;
    for address in addresses {
        match transfer::join(*address, &token, &home.keypair).await {
            Ok(admission) => {
                let membership = Membership::admitted(token.fields.issuer, &admission);
                for (cert, contact) in admission.members.clone() {
                    let node = cert.node;
                    put(&home.records, "member", &node.0, &KnownMember { cert, contact })?;
                }
                tracing::info!(cluster = %membership.cluster(), peer = %address, "admitted");
                return Ok(membership);
            }
            Err(error) => last = Some((address, error)),
        }
    }
    let (address, error) = last.ok_or_else(|| {
        Fault::usage(format!("{:?} names no address", args.peer), "give a member's host:port")
    })?;
    Err(Fault::new(
        format!("could not join through {address}: {error}"),
        "check the address and the token; `dynamo-node status` on the member shows whether it runs",
    ))
}
