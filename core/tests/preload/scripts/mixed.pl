# Strings, hashes, sorting, regular expressions, threads, fork, Storable, Encode, tied files. usage: mixed.pl SCALE
use strict;
use warnings;
use Config;
use Encode qw(encode decode);
use File::Temp qw(tempfile);
use IO::Compress::Gzip qw(gzip);
use IO::Uncompress::Gunzip qw(gunzip);
use List::Util qw(sum shuffle);
use Storable qw(freeze thaw dclone);

my $scale = shift;

my %words;
for my $i (1 .. 60_000 * $scale) {
  my $key = "word" . ($i * 7919 % 20_011);
  $words{$key} .= chr(97 + $i % 26) x ($i % 37);
  delete $words{"word" . ($i % 20_011)} if $i % 5 == 0;
}
printf "hash %d %d\n", scalar(keys %words), sum(map { length } values %words);

my @sorted = sort { length($words{$a}) <=> length($words{$b}) || $a cmp $b } keys %words;
print "sort $sorted[0] $sorted[-1]\n";

my $text = join ' ', map { "$_=$words{$_}" } @sorted;
my $count = () = $text =~ /\b(word\d+)=([a-m]+)/g;
(my $changed = $text) =~ s/(\d+)/<$1>/g;
my @fields = split /[ =]/, $text;
printf "regex %d %d %d\n", $count, length($changed), scalar(@fields);

my @list = map { { id => $_, text => 'x' x ($_ % 500) } } 1 .. 8000;
my $copy = thaw(freeze({ list => \@list, words => dclone(\%words) }));
printf "storable %d %d\n", sum(map { length $_->{text} } @{ $copy->{list} }), scalar keys %{ $copy->{words} };

my $unicode = join '', map { chr(0x100 + $_ % 5000) } 1 .. 200_000;
my $bytes = encode('UTF-16LE', $unicode);
printf "encode %d %d\n", length($bytes), decode('UTF-16LE', $bytes) eq $unicode;

gzip(\$text, \my $packed) or die 'gzip failed';
gunzip(\$packed, \my $unpacked) or die 'gunzip failed';
printf "gzip %d\n", $unpacked eq $text;

for my $round (1 .. 20 * $scale) {
  pipe my $reader, my $writer or die "pipe: $!";
  my $pid = fork // die "fork: $!";
  if (!$pid) {
    close $reader;
    my %mine = map { $_ => "$_$round" x 20 } 1 .. 3000;
    print {$writer} sum(map { length } values %mine), "\n";
    close $writer;
    exit 0;
  }
  close $writer;
  my $line = <$reader>;
  waitpid $pid, 0;
  die "child of round $round ended with $?" if $?;
  print "fork $line" if $round % 10 == 0;
}

if ($Config{useithreads}) {
  require threads;
  for my $round (1 .. 2 * $scale) {
    my @threads = map {
      my $n = $_;
      threads->create(sub { my %h = map { $_ => 'v' x ($_ % 300) } 1 .. 5000; sum(map { length } values %h) + $n })
    } 1 .. 6;
    printf "threads %d\n", sum(map { $_->join } @threads);
  }
}

my $string = '';
$string .= 'y' x ($_ % 5000) for 1 .. 20_000;
substr($string, 1000, 20_000_000, '');
printf "string %d\n", length $string;
print "done\n";
