//! What the library promises, tried through its public API on every store.
//!
//! A test of `on_every_store!` runs on the memory store and on a quorum of three such stores under paused
//! time, and on a real Redis. Tests of faults run on Redis alone, with a proxy in between (`network`),
//! with a server of their own (`server`), with several (`quorum`, `replicas`), or with processes of
//! their own under a witness outside of Redis (`processes`).
//!
//! Faults from the field, by the numbers that the tests' comments use, and where they are tried:
//!
//! | | mutual exclusion |
//! |---|---|
//! | a1 | `network::late_and_lost_renewals_are_tried_again_in_time` |
//! | a5 | `waiting::waiter_gets_a_whole_lease_however_long_it_waited` |
//! | a7 | `loss::lost_lock_never_becomes_valid_again`, `fencing::stale_holder_is_refused_by_the_storage` |
//! | a8 | `waiting::wait_is_a_hard_bound` |
//! | a10 | `server::body_does_not_run_while_redis_is_down`, `network::wait_bounds_a_call_whatever_the_network_does` |
//! | a13 | `release::transaction_inside_the_lock_loses_no_update` |
//! | a14 | of the memory store: it reads its clock and writes under one mutex |
//! | a15 | `processes::holder_frozen_inside_a_poll_is_refused_by_a_fenced_storage`, `fencing` |
//! | a3 | `quorum::hold_outlasts_nodes_that_restart_without_data`, and beside the code |
//! | a16 | beside the code: `backend::quorum::tests::a_node_of_another_holder_is_left_alone` |
//! | a11 | `replicas::failover_to_a_replica_that_was_waited_for_makes_no_two_holders`, and without; in a cluster: `replicas::failover_in_a_cluster_forgets_only_what_was_not_waited_for` |
//!
//! | | renewal |
//! |---|---|
//! | b17 | `cancel::short_calls_dropped_around_the_reply_leave_no_renewal` |
//! | b18 | `cancel::acquire_timed_out_at_any_millisecond_leaves_nothing` |
//! | b22 | `wire::nested_calls_send_nothing_more`, `reentrancy::recursion_releases_once` |
//! | b25 | `network::hold_outlasts_a_reconnect`, `..._over_a_slow_network`, `server::killed_clients_come_back` |
//! | b26 | `network::renewal_that_is_refused_for_a_moment_is_tried_again`, `server::hold_outlasts_a_busy_server` |
//! | b27 | `network::body_is_dropped_before_the_key_can_expire`, `loss::guard_learns_of_the_loss` |
//! | b28 | `loss::body_is_cancelled_at_max_hold`, `loss::guard_is_lost_at_max_hold_and_the_key_runs_out` |
//! | b30 | `processes::frozen_holder_is_not_polled_again`, `loss::frozen_holder_finds_its_lock_lost_at_the_first_look` |
//! | b32 | `server::sixty_long_bodies_cost_one_thread_and_few_commands` |
//! | b33 | `release::panic_releases` |
//! | b24 | `cluster::silent_node_harms_its_own_slots_only`, `cluster::thousand_locks_are_renewed_...` |
//!
//! | | release |
//! |---|---|
//! | c34 | `loss::lost_lock_does_not_touch_the_next_holder` |
//! | c36 | `server::body_that_changes_threads_releases` |
//! | c37 | `wire::waiter_that_times_out_leaves_with_one_script` |
//! | c39 | each option in both values: `acquire::ttl_is_the_lease_of_the_call`, `loss` (`strict`, `on_lost`, `max_hold`), `background` (`release`), `reentrancy` (`not_reentrant`), `waiting` (`max_waiters`), `fencing` |
//! | c40 | `release::value_error_and_return_release`, `release::panic_releases` |
//! | c41 | `network::release_that_gets_no_answer_keeps_the_value_and_goes_on`, `loss::strict_tells_that_the_body_was_perhaps_not_alone` |
//! | c43 | `network::release_into_a_black_hole_returns_in_time_and_frees_after_it` |
//! | c44 | `release::body_dropped_at_any_await_leaves_nothing` |
//! | c46 | `release::release_of_a_lapsed_lock_is_no_error_unless_strict`, `loss::strict_...`, `network::release_that_gets_no_answer_...` |
//! | c48 | `network::drop_never_blocks` |
//! | c49 | `network::leaving_after_the_loss_takes_no_time` |
//! | c50 | `network::late_release_does_not_touch_the_next_holder_of_the_same_client` |
//!
//! | | waiting |
//! |---|---|
//! | d52 | `network::release_before_the_subscription_is_not_missed` |
//! | d54 | `waiting::waiters_of_a_very_long_hold_keep_their_places` |
//! | d55 | `processes::many_waiters_that_came_and_went_leave_nothing_to_outwait` |
//! | d56 | `processes::killed_waiters_are_passed_over`, `processes::frozen_waiter_is_passed_over_and_served_later` |
//! | d58 | `network::waiter_whose_reply_was_lost_leaves_no_place_behind` |
//! | d60 | `network::wait_bounds_a_call_whatever_the_network_does`, `server::wait_bounds_a_call_on_a_frozen_server`, `waiting::wait_is_a_hard_bound` |
//! | d61 | `waiting::waiter_gets_a_whole_lease_however_long_it_waited` |
//! | d63 | `waiting::wait_is_a_hard_bound`: there is no retry to sleep after |
//! | d64 | `processes::killed_holder_costs_its_lease`, `waiting::waiter_outwaits_a_holder_that_never_releases` |
//! | d66, d67 | `several_keys` |
//!
//! | | reentrancy |
//! |---|---|
//! | e69 | `network::acquire_whose_reply_is_lost_is_one_hold_all_the_same` |
//! | e71 - e79 | `reentrancy`; its head is the matrix of e79 |
//!
//! | | connections |
//! |---|---|
//! | f80, f81 | on one server: `server::hold_and_wait_outlast_a_server_that_is_read_only_for_a_moment`; under sentinels: `sentinel::master_that_dies_...`, `sentinel::master_that_steps_down_...` |
//! | f85 | `cancel::acquire_timed_out_at_any_millisecond_leaves_nothing` |
//! | f86 | `network::silent_peer_at_the_start_is_an_error_in_time`, `network::dead_connection_is_replaced_...` |
//! | f87 | `server::wrong_password_is_told_at_once`, `server::password_that_changes_at_run_time_...` |
//! | f95 | `network::server_that_takes_no_writes_is_told_without_a_storm`, `server::full_server_keeps_what_is_held` |
//! | f96 | `network::cut_at_the_first_subscription_is_recovered_from` |
//! | f80, f81 | in a cluster: `cluster::deposed_primary_is_left_for_its_successor` |
//! | f90 | `quorum::node_that_is_refused_or_frozen_delays_nobody` |
//! | f92, f93 | beside the code: `backend::quorum::tests` |
//! | f94 | a cluster's replicas are never asked: they would answer MOVED, which `cluster` sees sent on |
//!
//! Of other groups: g102 (`server::keys_of_any_bytes_...`, `cluster::keys_of_any_bytes_...`), g104 (`held::ttl_...`,
//! `acquire::ttl_...`), g106 (`acquire::namespaces_...`), j144 and j146 in small
//! (`server::many_keys_...`), k154 (`waiting::time_out_...`, `network::time_out_names_...`), k155
//! (`shutdown`, `processes::shut_down_...`), k158 (`acquire::holder_...`), k159
//! (`server::user_without_channels_...`), k160 (`network::contention_goes_on_while_connections_are_killed`),
//! l162 (whatever runs on every store), l169 (`waiting::time_out_and_grant_at_the_same_moment_...`).

#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod background;
mod cancel;
mod cluster;
mod common;
mod dead_connection;
mod fencing;
mod held;
mod loss;
mod network;
mod processes;
mod quorum;
mod reentrancy;
mod release;
mod replicas;
mod runtimes;
mod sentinel;
mod server;
mod several_keys;
mod shutdown;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
mod wire;
