//! Free TCP ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// A port on which nothing listens at this moment.
///
/// It lies below the range from which the kernel picks the ports of outgoing connections: a client
/// that keeps trying a stopped server there could be given that very port, and would then be
/// connected to itself.
pub(crate) fn free_port() -> u16 {
    (0..1000)
        .map(|_| FIRST + (RandomState::new().hash_one(()) % u64::from(COUNT)) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of a thousand ports is free")
}

const FIRST: u16 = 16_000;
const COUNT: u16 = 16_000;
