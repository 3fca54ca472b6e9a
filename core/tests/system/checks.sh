# What is tried in the booted system, in this order; sourced by run, which defines check, control and the ports.
# shellcheck shell=bash disable=SC2154,SC2016  # variables of run; scripts that are expanded inside on purpose

ssh="ssh -p $ssh_port -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"
as_alice() { echo "su - alice -c '$1'"; }

check booted 'for i in $(seq 120); do state=$(systemctl is-system-running); case $state in running) exit 0 ;; degraded) break ;; esac
  sleep 1; done; echo "$state"; systemctl --failed --no-legend; exit 1'

if [ -z "$control" ]; then
  # Programs of the container's own tools, which podman starts, count as well. Kernel threads and those that just ended do not.
  check every_process_is_under_it 'for process in /proc/[0-9]*; do [ -s $process/cmdline ] 2>/dev/null || continue
    [ "$(tr -d "\0" <$process/cmdline)" != "" ] && [ -r $process/maps ] || continue
    grep -q libsnug $process/maps || { [ -d $process ] && [ -s $process/maps ] && tr "\0" " " <$process/cmdline && exit 1; }; done; exit 0'
fi

check ssh_login "$(as_alice "$ssh 127.0.0.1 id -un")"
check ssh_ten_logins "for i in 1 2 3 4 5 6 7 8 9 10; do $(as_alice "$ssh 127.0.0.1 true") || exit 1; done"
check ssh_megabytes "$(as_alice "head -c 20000000 /dev/urandom >/tmp/data && $ssh 127.0.0.1 cat /tmp/data | cmp - /tmp/data")"
check sftp "$(as_alice "echo get /tmp/data /tmp/data2 | sftp -P $ssh_port -o StrictHostKeyChecking=no -b - 127.0.0.1 && cmp /tmp/data /tmp/data2")"
check ssh_refuses_strangers "! su - nobody -s /bin/sh -c '$ssh alice@127.0.0.1 true'"

check cron 'for i in $(seq 130); do grep -qs uid=0 /run/cron-root && grep -qs alice /tmp/cron-alice && exit 0; sleep 1; done; exit 1'

check apt_update 'apt-get -qq update'
check apt_upgrade 'DEBIAN_FRONTEND=noninteractive apt-get -qq -y upgrade'
check apt_reinstall_libc 'DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --reinstall libc6 dpkg tar coreutils cron openssh-server'
check apt_install 'DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends git python3 vim-tiny && python3 -c "import json, ssl" && git --version'
check apt_purge 'DEBIAN_FRONTEND=noninteractive apt-get -qq -y purge vim-tiny && dpkg --audit'

sql="su - postgres -c"
check postgresql_answers "for i in \$(seq 60); do $sql 'psql -p $sql_port -Atc \"select 1\"' && exit 0; sleep 1; done; exit 1"
check postgresql_load "$sql 'createdb -p $sql_port bench && PATH=\$PATH:\$(echo /usr/lib/postgresql/*/bin) && pgbench -q -i -s 5 -p $sql_port bench && pgbench -n -c 4 -j 2 -T 8 -p $sql_port bench'"
check postgresql_sums "$sql 'psql -p $sql_port -Atc \"select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)\" bench' | grep -qx t"
check postgresql_restart "systemctl restart postgresql && $sql 'psql -p $sql_port -Atc \"select count(*) from pgbench_accounts\" bench' | grep -qx 500000"

check ftp_login "curl -sS --max-time 60 ftp://alice:secret@127.0.0.1:$ftp_port/ -l"
check ftp_both_ways "cp /tmp/data /home/alice/file && curl -sS --max-time 60 ftp://alice:secret@127.0.0.1:$ftp_port/file | cmp - /tmp/data &&
  curl -sS --max-time 60 -T /tmp/data ftp://alice:secret@127.0.0.1:$ftp_port/sent && cmp /tmp/data /home/alice/sent"
check ftp_refuses_strangers "! curl -sS --max-time 60 ftp://alice:wrong@127.0.0.1:$ftp_port/"

filters="-p SystemCallFilter=@system-service -p 'SystemCallFilter=~@privileged @resources' -p SystemCallArchitectures=native"
hardening="-p NoNewPrivileges=yes -p PrivateTmp=yes -p ProtectSystem=strict -p ProtectHome=yes -p RestrictNamespaces=yes
  -p LockPersonality=yes -p MemoryDenyWriteExecute=yes -p CapabilityBoundingSet= -p RestrictRealtime=yes -p User=alice"
check hardened_unit "systemd-run --wait -q $filters $(echo $hardening) /usr/local/bin/work --threads 4 --fork"
check hardened_interpreter "systemd-run --wait -q $filters $(echo $hardening) /usr/bin/python3 -c 'import threading, time
data = [bytes(9000) for _ in range(20000)]; data = None
threads = [threading.Thread(target=lambda: [bytes(5000) for _ in range(9000)]) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]; time.sleep(1.5); print(len([bytes(9000) for _ in range(9000)]))'"
check memory_limit "systemd-run --wait -q -p MemoryMax=200M -p User=alice /usr/local/bin/work --threads 4 --fork"

check reexec 'systemctl daemon-reexec && sleep 2 && systemctl is-active multi-user.target'
check services_restart 'systemctl restart ssh cron vsftpd && sleep 1 && systemctl is-active ssh cron vsftpd'
# The kernel's own messages are those of the whole machine.
check nothing_died '! journalctl -b --no-pager -o cat _TRANSPORT=journal + _TRANSPORT=stdout + _TRANSPORT=syslog | grep -E "snug: |segfault|code=(killed|dumped)|core-dump|status=31|double free"'
