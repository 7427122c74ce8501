//! A cluster of Restate servers on one machine.

use super::admin;
use super::server::{RestateServer, START_LIMIT, Settings};
use super::wait::wait_for;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Servers that replicate to each other: each write is stored on two of them before it is
/// acknowledged, so a cluster of three keeps working while one of them is killed.
///
/// The first node provisions the cluster on its own; the others join it.
#[derive(Debug)]
pub(crate) struct RestateCluster {
    nodes: Vec<RestateServer>,
}

impl RestateCluster {
    /// Starts a cluster of `size` nodes, and waits until all are healthy and each partition has a
    /// leader that all of them know. The first calls may still take a second or two, while
    /// partitions move between the nodes.
    pub(crate) async fn start(size: usize) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        assert!(size >= 2, "two copies need two nodes");
        // Nodes refuse peers with another cluster name, for example those of a concurrent test.
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut nodes: Vec<_> = (0..size).map(|_| RestateServer::reserve()).collect();
        let addresses: Vec<_> =
            nodes.iter().map(|node| format!("{:?}", node.fabric_url())).collect();
        let addresses = addresses.join(", ");
        for (index, node) in nodes.iter_mut().enumerate() {
            node.configure(&settings(&name, index, &addresses));
            node.start_process();
        }
        for node in &mut nodes {
            node.wait_until_healthy().await;
        }
        let cluster = Self { nodes };
        cluster.wait_for_leaders().await;
        cluster
    }

    /// Waits until each node can read the invocations of all partitions in one round: healthy nodes
    /// elect the leaders a few seconds later.
    async fn wait_for_leaders(&self) {
        wait_for("all partitions have a leader", START_LIMIT, async || {
            for node in &self.nodes {
                let sql = "SELECT COUNT(*) FROM sys_invocation_status";
                admin::try_query(&node.admin_url(), sql).await?;
            }
            Ok(())
        })
        .await;
    }

    /// Registers the worker at `worker_url`, waits until each running node knows it, and returns
    /// the id of its deployment.
    pub(crate) async fn register(&self, worker_url: &str) -> String {
        let mut running = self.nodes.iter().filter(|node| node.is_running());
        let first = running.next().expect("a node runs");
        let deployment = admin::register(&first.admin_url(), worker_url).await;
        for node in running {
            admin::wait_for_deployment(&node.admin_url(), &deployment).await;
        }
        deployment
    }

    /// The number of nodes, killed ones included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node of this index, from 0.
    pub(crate) fn node(&self, index: usize) -> &RestateServer {
        &self.nodes[index]
    }

    pub(crate) fn ingress_url(&self, index: usize) -> String {
        self.nodes[index].ingress_url()
    }

    pub(crate) fn admin_url(&self, index: usize) -> String {
        self.nodes[index].admin_url()
    }

    /// Kills a node with SIGKILL. Its files stay.
    pub(crate) fn kill(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    /// Starts a killed node again, with the same ports and files.
    pub(crate) async fn restart(&mut self, index: usize) {
        self.nodes[index].restart().await;
    }
}

/// `gossip-suspect-interval` is how long a new node has to be reachable before it is used; the
/// default of 5 seconds is most of the time that a cluster takes to start.
fn settings(cluster: &str, index: usize, addresses: &str) -> Settings {
    let common = format!(
        r#"cluster-name = "cluster-{cluster}"
node-name = "node-{number}"
auto-provision = {first}
default-replication = 2
gossip-suspect-interval = "500ms""#,
        number = index + 1,
        first = index == 0,
    );
    let tables = format!(
        r#"[metadata-client]
type = "replicated"
addresses = [{addresses}]"#
    );
    Settings { common, tables }
}
