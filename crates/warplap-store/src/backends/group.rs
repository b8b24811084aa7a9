//! Groups of one: a group's and a user's number come in; whether nobody but that user is in the group goes out.
//!
//! Many systems give every user a group of their own and let it write to everything they make. Such a group is no
//! stranger. What cannot be read from the system's two files is not believed.

use std::fs;

/// Whether a group holds one user and nobody else. Never said of root, whose group is everybody's to join.
pub(crate) fn is_private(gid: u32, uid: u32) -> bool {
    let read = |path: &str| fs::read_to_string(path).ok();
    uid != 0
        && read("/etc/group")
            .zip(read("/etc/passwd"))
            .is_some_and(|(groups, users)| holds_alone(&groups, &users, gid, uid))
}

fn holds_alone(groups: &str, users: &str, gid: u32, uid: u32) -> bool {
    // Lines that are no user's or group's, such as those that ask a directory service for more, end the trust.
    let Some(users) = users.lines().map(user).collect::<Option<Vec<_>>>() else { return false };
    let Some(groups) = groups.lines().map(group).collect::<Option<Vec<_>>>() else { return false };
    let mine = |name: &str| users.iter().any(|u| u.name == name && u.uid == uid);
    let primary = users.iter().filter(|u| u.gid == gid);
    let listed: Vec<&Group<'_>> = groups.iter().filter(|g| g.gid == gid).collect();
    !listed.is_empty()
        && primary.clone().count() > 0
        && primary.clone().all(|u| u.uid == uid)
        && listed.iter().all(|g| g.members.split(',').filter(|m| !m.is_empty()).all(mine))
}

struct User<'t> {
    name: &'t str,
    uid: u32,
    gid: u32,
}

struct Group<'t> {
    gid: u32,
    members: &'t str,
}

/// `name:password:uid:gid:…`
fn user(line: &str) -> Option<User<'_>> {
    let mut parts = line.split(':');
    let name = parts.next().filter(|name| is_here(name))?;
    let (uid, gid) = (parts.nth(1)?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(User { name, uid, gid })
}

/// `name:password:gid:members`
fn group(line: &str) -> Option<Group<'_>> {
    let mut parts = line.split(':');
    parts.next().filter(|name| is_here(name))?;
    Some(Group { gid: parts.nth(1)?.parse().ok()?, members: parts.next()? })
}

/// Whether a name is one, and not a word for all that another service knows.
fn is_here(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(['+', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/:/bin/sh\n";

    #[test]
    fn a_group_is_private_where_its_user_is_alone_in_it() {
        let alone = |groups: &str, gid, uid| holds_alone(groups, USERS, gid, uid);
        assert!(alone("root:x:0:\nann:x:1000:\n", 1000, 1000));
        assert!(alone("ann:x:1000:ann\n", 1000, 1000));
        assert!(!alone("ann:x:1000:bob\n", 1000, 1000), "somebody else is in it");
        assert!(!alone("ann:x:1000:\nalias:x:1000:bob\n", 1000, 1000), "under another name");
        assert!(!alone("users:x:100:\n", 100, 1000), "it is somebody else's first group");
        assert!(!alone("users:x:200:\n", 200, 1000), "nobody's first group: who joins it is not known");
        assert!(!alone("root:x:0:\n", 1000, 1000), "not in the file");
        assert!(!alone("ann:x:1000:\n+::0:\n", 1000, 1000), "there are groups elsewhere");
        assert!(!is_private(0, 0));
    }
}
