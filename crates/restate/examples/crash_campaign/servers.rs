//! The servers that are killed: a single one, or the nodes of a cluster.

use crate::support::{RestateCluster, RestateServer, register};

pub(crate) enum Servers {
    One(RestateServer),
    Cluster(RestateCluster),
}

impl Servers {
    pub(crate) async fn start(nodes: usize) -> Self {
        match nodes {
            1 => Self::One(RestateServer::start().await),
            nodes => Self::Cluster(RestateCluster::start(nodes).await),
        }
    }

    /// The URLs of all nodes.
    pub(crate) fn ingress_urls(&self) -> Vec<String> {
        match self {
            Self::One(server) => vec![server.ingress_url()],
            Self::Cluster(cluster) => {
                (0..cluster.len()).map(|node| cluster.ingress_url(node)).collect()
            }
        }
    }

    /// Registers the workers at this URL.
    pub(crate) async fn register(&self, url: &str) {
        match self {
            Self::One(server) => drop(register(&server.admin_url(), url).await),
            Self::Cluster(cluster) => drop(cluster.register(url).await),
        }
    }

    /// Kills the server, or the node with this index.
    pub(crate) fn kill(&mut self, node: usize) {
        match self {
            Self::One(server) => server.kill(),
            Self::Cluster(cluster) => cluster.kill(node),
        }
    }

    /// Starts a killed server again.
    pub(crate) async fn restart(&mut self, node: usize) {
        match self {
            Self::One(server) => server.restart().await,
            Self::Cluster(cluster) => cluster.restart(node).await,
        }
    }

    /// The logs of all nodes.
    pub(crate) fn logs(&self) -> String {
        match self {
            Self::One(server) => server.log(),
            Self::Cluster(cluster) => {
                (0..cluster.len()).map(|node| cluster.node(node).log()).collect()
            }
        }
    }
}
