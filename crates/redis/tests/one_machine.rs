//! The suite for hubs, on one machine.

turnstream_test_support::hub_suite!(on_machines, crate::grid::OneMachine);
