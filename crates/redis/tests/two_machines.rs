//! The suite for hubs, with the readers and senders on another machine than the run.

turnstream_test_support::hub_suite!(on_machines, crate::grid::TwoMachines);
