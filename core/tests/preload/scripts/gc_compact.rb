# Compaction moves Ruby's objects while malloc'ed parts stay; every object is checked afterwards.
# usage: gc_compact.rb SCALE
scale = Integer(ARGV[0])

def make(count)
  (0...count).map do |i|
    case i % 5
    when 0 then "string #{i} " * (i % 90 + 1)
    when 1 then Array.new(i % 200) { |n| n * i }
    when 2 then (0...i % 40).to_h { |n| ["key #{n}", "value #{i}" * (n % 7)] }
    when 3 then { i => Struct.new(:number, :text).new(i, "text #{i}" * 10) }
    else [i, i.to_s, i.to_s.to_sym, i.to_f, 2**(i % 300)]
    end
  end
end

def digest(objects)
  objects.map { |object| object.inspect.gsub(/struct #<Class:0x\h+>|#<Class:0x\h+>/, 'class').hash }.hash
end

GC.auto_compact = true
(2 * scale).times do |round|
  objects = make(6000)
  before = digest(objects)
  objects.each_with_index { |_, i| objects[i] = objects[i].dup if i % 3 == round % 3 }
  garbage = make(3000)
  garbage = nil
  GC.compact
  GC.start
  abort "objects changed in round #{round}" unless digest(objects) == before
  GC.verify_compaction_references(toward: :empty, double_heap: true) if round.even?
  abort "objects changed by verify_compaction_references" unless digest(objects) == before
end

GC.stress = true
stressed = (0...60).map { |i| "#{i}" * i }
GC.stress = false
abort 'GC.stress broke strings' unless stressed.each_with_index.all? { |text, i| text == i.to_s * i }

GC.start
abort 'GC.stat has no heap' unless GC.stat(:heap_live_slots).positive?
GC::Profiler.enable
make(2000)
GC.start
abort 'GC::Profiler saw no collection' if GC::Profiler.total_time.zero?
puts 'gc_compact ok'
