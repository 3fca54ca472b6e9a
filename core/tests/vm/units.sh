# Units of systemd with limits of memory and with sandboxes, containers, the exporter, the black box: in a machine with
# control groups of version 2. Run by core/tests/vm/inside.
# shellcheck shell=bash disable=SC2016  # scripts that other shells expand
set -uo pipefail
library=/usr/lib/snug/libsnug.so programs=$PWD/build/tests folder=$PWD
work=/run/snug-vm
passed=0 failed=0 skipped=0
mkdir -p $work
export library programs folder work
export SYSTEMD_BUS_TIMEOUT=300 # the machine is slow

# check NAME SCRIPT [ARGUMENT...]: bash's script, with the functions here, must succeed within 5 minutes.
check() {
  local name=$1 script=$2 status
  shift 2
  # shellcheck disable=SC2053  # a pattern
  [[ -z "${ONLY:-}" || $name = $ONLY ]] || return 0
  timeout -k 10 300 bash -c "set -uo pipefail; $script" sh "$@" >$work/check 2>&1 </dev/null
  status=$?
  if [ $status -eq 0 ]; then
    echo "ok $name"
    passed=$((passed + 1))
  else
    echo "not ok units/$name: status $status"
    tail -n 12 $work/check | cut -c 1-200 | sed 's/^/  /'
    failed=$((failed + 1))
  fi
}

# within "PROPERTY..." COMMAND...: runs it in a unit of its own, preloaded and with what it does printed at its end.
within() {
  local properties=() property
  for property in $1; do properties+=(-p "${property//+/ }"); done
  shift
  systemd-run --quiet --wait --pipe --collect "${properties[@]}" -E SNUG="${SNUG:-verbose:1,stats_print:1}" \
    -E LD_PRELOAD=$library "$@"
}

# group: the folder of the group that calls it.
group() { echo "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"; }

# eventually COMMAND...: within a minute or two.
eventually() {
  local _
  for _ in $(seq 100); do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 1
  done
  "$@"
}

# number FIELD FILE: what stats_print or a file of the kernel says last, 0 if nothing.
number() { grep -oE "\"?\b$1\"?[: ][0-9]+" "$2" | tail -n 1 | grep -oE '[0-9]+$' || echo 0; }
at_least() { [ "$1" -ge "$2" ] || { echo "$1 is less than $2"; return 1; }; }
at_most() { [ "$1" -le "$2" ] || { echo "$1 is more than $2"; return 1; }; }
export -f within group eventually number at_least at_most

install -D build/libsnug.so $library
install build/snug /usr/bin/snug
mkswap -q /dev/vdc && swapon /dev/vdc

check version_2 '[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] && grep -qw memory /sys/fs/cgroup/cgroup.subtree_control'
check running 'eventually systemctl is-active multi-user.target; systemctl --failed --no-legend | grep . && exit 1; exit 0'

# ---- limits: churn needs what it freed, in blocks of other sizes, and lives only if it gives that back at the limit ----

churn='within "$1" -E SNUG=purge_cpu_percent:0,stats_print:1 sh -c "$programs/container/churn; status=\$?
  unset LD_PRELOAD; cat /sys/fs/cgroup\$(sed -n s/^0:://p /proc/self/cgroup)/memory.events; exit \$status" >$work/said 2>&1
  status=$?; cat $work/said; grep -qx done $work/said && at_least "$(number limit_purges $work/said)" 1 &&
  [ "$(number oom_kill $work/said)" -eq 0 ] && [ $status -eq 0 ]'
check memory_max "$churn" 'MemoryMax=100M MemorySwapMax=0'
check memory_high "$churn" 'MemoryHigh=100M MemorySwapMax=0'
check memory_high_below_max "$churn" 'MemoryHigh=100M MemoryMax=1G MemorySwapMax=0'
check memory_max_of_the_slice "mkdir -p /run/systemd/system/tight.slice.d
  printf '[Slice]\nMemoryMax=100M\nMemorySwapMax=0\n' >/run/systemd/system/tight.slice.d/limit.conf; systemctl daemon-reload
  $churn" 'Slice=tight.slice'
check memory_max_and_little_swap "$churn" 'MemoryMax=100M MemorySwapMax=20M'
check memory_max_in_its_own_namespace "$churn" 'MemoryMax=100M MemorySwapMax=0 ProtectControlGroups=yes PrivateTmp=yes'
check memory_max_where_proc_has_only_processes "$churn" 'MemoryMax=100M MemorySwapMax=0 ProcSubset=pid ProtectProc=invisible'
check memory_max_of_a_dynamic_user "$churn" 'MemoryMax=100M MemorySwapMax=0 DynamicUser=yes'
[ "$(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')" -lt 257 ] ||
  check memory_max_of_private_control_groups "$churn" 'MemoryMax=100M MemorySwapMax=0 ProtectControlGroupsEx=private'

# The limit of a unit that runs may change.
cat >$work/holes.py <<'PYTHON'
import time
kept = [bytes(9000) for _ in range(14000)]
del kept[::2]
while True:
    [bytes(20000) for _ in range(50)]
    time.sleep(0.02)
PYTHON
check memory_max_set_later 'systemd-run -q --unit later -p MemorySwapMax=0 -p MemoryMax=1G -E LD_PRELOAD=$library \
    -E SNUG=purge_cpu_percent:0 python3 $work/holes.py
  memory() { awk -v key=$1 "\$1 == key { print \$2 }" /sys/fs/cgroup/system.slice/later.service/memory.stat; }
  held() { [ "$(memory anon)" -gt 100000000 ]; }; eventually held && sleep 2
  systemctl set-property --runtime later MemoryMax=$(($(memory anon) * 103 / 100)) || exit
  purged() { snug stats --json "$(systemctl show -P MainPID later)" >$work/said && at_least "$(number limit_purges $work/said)" 1; }
  eventually purged; status=$?; systemctl stop later; exit $status'

# ---- out of memory ----

cat >$work/leak.py <<'PYTHON'
import time
kept = []
def leak():
    kept.append(bytearray(100000))
def work():
    bytearray(50000)
while True:
    leak(); work(); time.sleep(0.01)
PYTHON
cat >$work/leak.rb <<'RUBY'
$kept = []
def leak = $kept << "x" * 100_000
def work = "y" * 50_000
loop { leak; work; sleep 0.01 }
RUBY
killed='box=$work/box-$1-$2 unit=killed-$1-$2 result=oom-kill; mkdir -p $box; [ $2 != continue ] || result=signal
  systemd-run -q --unit $unit -p MemoryMax=120M -p MemorySwapMax=0 -p OOMPolicy=$2 snug run --black-box $box -- $1 $3 &&
  eventually systemctl is-failed $unit; [ "$(systemctl show -P Result $unit)" = $result ] || { systemctl status $unit; exit 1; }
  systemctl reset-failed $unit; sleep 2; snug blame $box; snug blame --json $box >$work/said || exit
  python3 -c "import json, sys
said = json.load(open(\"$work/said\")); functions = [frame[\"function\"].split(\"#\")[-1] for frame in said[\"sites\"][0][\"frames\"]]
print(said[\"answer\"], functions); limit = said[\"black_box\"][\"limit_bytes\"]
sys.exit(not (\"leak\" in functions and limit == 120 << 20 and (\"$2\" == \"kill\" or \"OOM-killed\" in said[\"answer\"])))"'
for policy in continue stop kill; do
  check black_box_python_$policy "$killed" python3 $policy $work/leak.py
  check black_box_ruby_$policy "$killed" ruby $policy $work/leak.rb
done

# ---- swap, and what the suite container checks: in groups that it makes itself ----

check suite_container 'core/tests/container/run_container.sh $programs/container/churn $programs/container/steady $library'

# ---- a service, as the page on systemd says ----

cat >$work/app.py <<'PYTHON'
import time
kept = [bytes(900) for _ in range(30000)]
while True:
    [bytes(900) for _ in range(3000)]
    time.sleep(0.2)
PYTHON
check service_with_a_drop_in 'units=/run/systemd/system && mkdir -p $units/my-app.service.d &&
  printf "[Service]\nExecStart=/usr/bin/python3 $work/app.py\nDynamicUser=yes\nMemoryMax=300M\n" >$units/my-app.service &&
  sed -n "/^\`\`\`ini/,/^\`\`\`\$/p" docs/how-to/roll-out-systemd.md | sed "1d;\$d" >$units/my-app.service.d/override.conf &&
  systemctl daemon-reload && snug check --expect snug --unit my-app.service && systemctl restart my-app && sleep 3 &&
  snug check --expect snug unit:my-app.service && snug check --expect snug "$(systemctl show -P MainPID my-app)"'
check other_commands_see_the_service 'pid=$(systemctl show -P MainPID my-app) && snug stats $pid >$work/said && grep "heap: snug" $work/said &&
  snug stats --where $pid && snug top --once $pid >$work/said && grep "snug 0" $work/said && snug purge $pid && snug profile --for 1s $pid'
check exporter_service 'cp deploy/systemd/snug-exporter.service /etc/systemd/system/ && systemctl daemon-reload && systemctl start snug-exporter &&
  metrics() { python3 -c "import urllib.request
print(urllib.request.urlopen(\"http://127.0.0.1:9876/metrics\").read().decode())" >$work/metrics && grep my-app $work/metrics; }
  eventually metrics && grep -E "my-app" $work/metrics | head -n 5; systemctl is-active snug-exporter &&
  grep -qE "^snug_process_info\{allocator=\"snug\".*cgroup=\"/system.slice/my-app.service\"" $work/metrics &&
  grep -qE "^snug_cgroup_memory_limit_bytes\{.*my-app.service.* 314572800$" $work/metrics'

# ---- sandboxes: it must do there what it does without, and be the allocator ----

work_in='within "$1" $programs/sandbox/work --threads 4 --fork >$work/said 2>&1; status=$?; cat $work/said
  [ $status -eq 0 ] && grep -q "^snug: [0-9.]* active" $work/said && ! grep -q "^snug: [a-z]" $work/said'
sandbox() { check "sandbox_$1" "$work_in" "$2"; }
service='SystemCallFilter=@system-service SystemCallArchitectures=native'
sandbox system_service "$service"
sandbox less_privileged "$service SystemCallFilter=~@privileged+@resources NoNewPrivileges=yes"
sandbox errors_instead_of_kills "$service SystemCallFilter=~@privileged+@resources+membarrier SystemCallErrorNumber=EPERM"
sandbox deny_write_execute 'MemoryDenyWriteExecute=yes'
sandbox proc_invisible 'ProtectProc=invisible ProcSubset=pid User=nobody'
sandbox no_proc_limits 'ProtectKernelTunables=yes ProtectControlGroups=yes ProtectKernelLogs=yes'
sandbox private_tmp 'PrivateTmp=yes PrivateDevices=yes PrivateNetwork=yes PrivateMounts=yes'
sandbox dynamic_user 'DynamicUser=yes'
sandbox private_users 'PrivateUsers=yes'
sandbox no_namespaces 'RestrictNamespaces=yes LockPersonality=yes RestrictSUIDSGID=yes RestrictRealtime=yes'
sandbox no_capabilities 'User=nobody CapabilityBoundingSet= AmbientCapabilities='
sandbox little_address_space 'LimitAS=2G LimitNOFILE=16 LimitSTACK=1M'
sandbox locked_memory 'LimitMEMLOCK=64K'
sandbox strict 'ProtectSystem=strict ProtectHome=yes ProtectClock=yes ProtectHostname=yes ProtectKernelModules=yes'
sandbox all_of_it "$service SystemCallFilter=~@privileged+@resources MemoryDenyWriteExecute=yes ProtectProc=invisible ProcSubset=pid
  PrivateTmp=yes PrivateDevices=yes PrivateUsers=yes DynamicUser=yes ProtectSystem=strict ProtectHome=yes RestrictNamespaces=yes
  LockPersonality=yes CapabilityBoundingSet= NoNewPrivileges=yes UMask=0077 ProtectControlGroups=yes ProtectKernelTunables=yes"

# ---- containers ----

check nspawn 'systemd-nspawn --quiet --directory=/ --volatile=yes --property=MemoryMax=100M --property=MemorySwapMax=0 --pipe \
    --bind-ro="$folder" -E LD_PRELOAD=$library -E SNUG=purge_cpu_percent:0,stats_print:1 "$programs/container/churn" >$work/said 2>&1
  cat $work/said; grep -qx done $work/said && at_least "$(number limit_purges $work/said)" 1'
mkdir -p /srv/box/{usr,run,tmp,dev,proc,sys,etc,var} "/srv/box$folder"
for link in bin sbin lib lib64; do ln -sfn usr/$link /srv/box/$link; done
contained='podman run --name $1 --network none --memory 100m --memory-swap 100m -v /usr:/usr:ro -v "$folder:$folder:ro" -v $work:$work'
check podman "$contained -e LD_PRELOAD=\$library -e SNUG=purge_cpu_percent:0,stats_print:1 --rootfs /srv/box \"\$programs/container/churn\" >\$work/said 2>&1
  cat \$work/said; grep -qx done \$work/said && at_least \"\$(number limit_purges \$work/said)\" 1" one
check podman_seen_from_the_host "$contained -d -e LD_PRELOAD=\$library --rootfs /srv/box python3 -c 'import time; kept = [bytes(900) for _ in range(30000)]; time.sleep(3600)' &&
  sleep 3; pid=\$(podman inspect -f '{{.State.Pid}}' two) && snug check --expect snug \$pid && snug stats \$pid && snug top --once \$pid; status=\$?; podman rm -f -t 1 two; exit \$status" two
check podman_black_box "mkdir -p \$work/box-podman; $contained --rootfs /srv/box snug run --black-box \$work/box-podman -- python3 $work/leak.py
  snug blame \$work/box-podman; snug blame --json \$work/box-podman | python3 -c 'import json, sys
said = json.load(sys.stdin); sys.exit(not (said[\"sites\"][0][\"frames\"][0][\"function\"] == \"leak\" and said[\"black_box\"][\"limit_bytes\"] == 100 << 20))'" three

# ---- what compare and advise say of a machine with a limit ----

compared='within "$1" env -u LD_PRELOAD -u SNUG snug compare --runs 1 --json --only glibc,snug -- ruby -e "kept = (1..20000).map { |n| \"x\" * 500 }" >$work/said 2>$work/warned
  cat $work/warned; python3 -c "import json, sys
said = json.load(open(\"$work/said\")); machine = said[\"machine\"]; print(machine, said[\"settings\"])
peaks = [run.get(\"cgroup_peak_bytes\") for run in said[\"runs\"]]; print(peaks)
sys.exit(not (machine[\"cgroup_memory_limit_bytes\"] == $2 and ($3 == 0 or all(peaks))))"'
check compare_within_a_limit "$compared" 'MemoryMax=400M' $((400 << 20)) 0
check compare_measures_peaks "$compared" 'Delegate=yes' None 1

check nothing_died '! dmesg | grep -E "segfault|general protection|trap invalid" && ! journalctl -b --no-pager -o cat | grep -E "snug: fatal|snug: bug|status=31|code=dumped"'
echo "units: $passed passed, $failed failed, $skipped skipped"
