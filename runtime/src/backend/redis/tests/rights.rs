//! Users who may not do everything.

use super::*;

#[tokio::test]
async fn a_wrong_password_is_refused_at_once_and_not_repeated_in_the_message() {
    let server = RedisServer::start();
    server.backend_as("app", &["+@all", "~*", "&*"]);
    let url = format!("redis://app:not-that@{}", server.address());
    let error = RedisBackend::new(config_from_url(&url).unwrap()).open().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    let expected = format!(
        "wrong password for redis at {}: check the user and password in the URL",
        server.address()
    );
    assert_eq!(&*error.message, expected);
}

#[tokio::test]
async fn a_missing_password_is_refused_at_once() {
    let server = RedisServer::start();
    server.run::<()>(&["ACL", "SETUSER", "admin", "on", "nopass", "+@all", "~*", "&*"]);
    server.run::<()>(&["ACL", "SETUSER", "default", "off"]);
    let error = server.backend().open().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(error.message.contains("password"), "{error}");
}

#[tokio::test]
async fn a_password_alone_signs_in_as_the_default_user() {
    let server = RedisServer::start();
    server.run::<()>(&["ACL", "SETUSER", "default", "resetpass", ">se:cr/et"]);
    let url = format!("redis://:se%3Acr%2Fet@{}", server.address());
    let channel = RedisBackend::new(config_from_url(&url).unwrap()).open().await.unwrap();
    hold(&*channel, &lock("k", "ours")).await;
}

#[tokio::test]
async fn a_password_changed_at_run_time_is_refused_at_the_next_connection() {
    let server = RedisServer::start();
    let backend = server.backend_as("app", &["+@all", "~*", "&*"]);
    let channel = backend.open().await.unwrap();
    server.run::<()>(&["ACL", "SETUSER", "app", "resetpass", ">other"]);
    server.run::<()>(&["CLIENT", "KILL", "USER", "app"]);
    eventually("the channel closes", || !channel.is_open()).await;
    assert_eq!(kind_of(backend.open().await), StoreErrorKind::Refused);
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused() {
    let server = RedisServer::start();
    let config = config_from_url(&format!("{}/99", server.url())).unwrap();
    assert_eq!(kind_of(RedisBackend::new(config).open().await), StoreErrorKind::Refused);
}

/// The documented line for a user of this name.
fn documented(user: &str) -> Vec<&'static str> {
    let line = include_str!("../../../../docs/servers.md")
        .lines()
        .find(|line| line.starts_with(&format!("ACL SETUSER {user} ")));
    line.unwrap().split(' ').collect()
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let server = RedisServer::start();
    server.run::<()>(&documented("app"));
    let url = format!("redis://app:password@{}", server.address());
    let backend = RedisBackend::new(config_from_url(&url).unwrap());
    let contender = Contender::on(Arc::new(backend)).await;
    assert!(contender.channel().delivers_events());
    for key in ["stock:7", "stock:{7}", "stock:}{"] {
        let [first, second] = ["first", "second"].map(|owner| lock(key, owner));
        hold(contender.channel(), &first).await;
        assert!(matches!(contender.contend(&second).await, Contended::Queued { .. }));
        let renewal = Renewal { lock: first.clone(), lease: LEASE };
        assert_eq!(contender.channel().renew(&[renewal]).await.unwrap(), [Renewed::Renewed]);
        let drawn = contender.channel().draw(&first, None).await.unwrap();
        assert!(matches!(drawn, Drawn::Token(_)), "{drawn:?}");
        assert!(contender.channel().inspect(&first.key).await.unwrap().is_some());
        let released = contender.channel().release(&first, CLAIM).await.unwrap();
        assert_eq!(released, granted_to(&second));
        contender.hears(Heard::granted(&second)).await;
        contender.channel().release(&second, CLAIM).await.unwrap();
        let drawn = contender.channel().draw(&first, Some(LEASE)).await.unwrap();
        assert!(matches!(drawn, Drawn::Token(_)), "{drawn:?}");
        contender.channel().release(&first, CLAIM).await.unwrap();
    }
    assert_eq!(server.run::<Vec<redis::Value>>(&["ACL", "LOG"]), []);
}

#[tokio::test]
async fn none_of_the_documented_commands_can_be_spared() {
    let all = documented("app");
    // What may be left out, by the table in the documentation.
    let spared = ["+hello", "+info", "+publish", "+subscribe", "+script|load"];
    let server = RedisServer::start();
    // A script fails at the first command that it may not run.
    let needed = all.iter().filter(|word| word.starts_with('+') && !spared.contains(word));
    for word in needed {
        let mut words: Vec<&str> = all.iter().copied().filter(|other| other != word).collect();
        words.insert(3, "reset");
        server.run::<()>(&words);
        let url = format!("redis://app:password@{}", server.address());
        let backend = RedisBackend::new(config_from_url(&url).unwrap());
        let outcome = everything(&server, &backend).await;
        server.run::<()>(&["FLUSHALL"]);
        assert!(outcome.is_err(), "{word} is not needed");
    }
    let outcome = everything(&server, &server.backend()).await;
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// Uses every request in each of its ways.
async fn everything(server: &RedisServer, backend: &RedisBackend) -> StoreResult<()> {
    let ears = Contender::ears();
    let weak = Arc::downgrade(&ears);
    let channel = backend.open_listening(weak).await?;
    let [first, second, third] = ["first", "second", "third"].map(|owner| lock("stock:7", owner));
    channel.acquire(&first, LEASE).await?;
    channel.draw(&first, None).await?;
    channel.draw(&lock("stock:8", "first"), Some(LEASE)).await?;
    channel.contend(&second, LEASE, KEEP).await?;
    channel.contend(&third, LEASE, KEEP).await?;
    channel.renew(&[Renewal { lock: first.clone(), lease: LEASE }]).await?;
    channel.inspect(&first.key).await?;
    // Forgotten scripts are sent in full.
    server.run::<()>(&["SCRIPT", "FLUSH"]);
    for lock in [&first, &second, &third] {
        channel.release(lock, CLAIM).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_user_who_may_not_load_scripts_sends_them_in_full() {
    let server = RedisServer::start();
    let backend = server.backend_as("app", &["+@all", "-script", "~*", "&*"]);
    let channel = backend.open().await.unwrap();
    let ours = lock("k", "ours");
    hold(&*channel, &ours).await;
    assert_eq!(channel.release(&ours, CLAIM).await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn where_publishing_is_forbidden_a_release_frees_the_lock() {
    let server = RedisServer::start();
    let backend = server.backend_as("app", &["+@all", "-publish", "~*", "&*"]);
    let contender = Contender::on(Arc::new(backend)).await;
    let [holder, waiting] = ["holder", "waiting"].map(|owner| lock("k", owner));
    hold(contender.channel(), &holder).await;
    assert!(matches!(contender.contend(&waiting).await, Contended::Queued { .. }));
    let released = contender.channel().release(&holder, CLAIM).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert_eq!(contender.contend(&waiting).await, Contended::Granted);
}

#[tokio::test]
async fn where_the_channel_is_forbidden_contenders_go_by_timer() {
    let server = RedisServer::start();
    let backend = server.backend_as("app", &["+@all", "~*", "resetchannels"]);
    let deaf = Contender::on(Arc::new(backend)).await;
    let hearing = Contender::on(Arc::new(server.backend())).await;
    assert!(!deaf.channel().delivers_events());
    assert!(hearing.channel().delivers_events());
    let [holder, first, second] = ["holder", "first", "second"].map(|owner| lock("k", owner));
    hold(deaf.channel(), &holder).await;
    assert!(matches!(deaf.contend(&first).await, Contended::Queued { .. }));
    assert!(matches!(hearing.contend(&second).await, Contended::Queued { .. }));
    // Granting past the deaf one would starve it, granting to it would leave the lock idle.
    let released = hearing.channel().release(&holder, CLAIM).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert_eq!(deaf.contend(&first).await, Contended::Granted);
}

#[tokio::test]
async fn a_forbidden_key_is_refused() {
    let server = RedisServer::start();
    let backend = server.backend_as("app", &["+@all", "~mine:*", "&*"]);
    let channel = backend.open().await.unwrap();
    let theirs = lock("theirs", "ours");
    assert_eq!(kind_of(channel.acquire(&theirs, LEASE).await), StoreErrorKind::Refused);
    assert_eq!(kind_of(channel.release(&theirs, CLAIM).await), StoreErrorKind::Refused);
    assert!(channel.is_open());
}
