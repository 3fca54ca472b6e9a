<?php
// Strings, arrays, regular expressions, JSON and sorting, by the number in the query; prints sums that depend on all.
$n = (int)($_GET['n'] ?? 0);
$rows = [];
for ($i = 0; $i < 2000 + 100 * $n; $i++) {
    $rows["key$i"] = ['id' => $i, 'name' => str_repeat(chr(97 + $i % 26), $i % 200), 'tags' => [$i % 7, $i % 11]];
}
uasort($rows, fn($a, $b) => [strlen($b['name']), $a['id']] <=> [strlen($a['name']), $b['id']]);
$text = json_encode($rows);
$again = json_decode($text, true);
$found = preg_match_all('/"id":(\d+)/', $text, $matches);
$large = str_repeat('x', 1000000 * ($n % 5 + 1));
echo "$n $found ", md5($text), ' ', array_sum($matches[1]), ' ', strlen($large), ' ', crc32(serialize($again)), "\n";
$objects = [];
for ($i = 0; $i < 500; $i++) {
    $objects[$i] = new stdClass;
    $objects[$i]->other = $objects[$i * 7 % ($i + 1)];
}
unset($objects, $large);
echo gc_collect_cycles() >= 0 ? "done\n" : "no\n";
