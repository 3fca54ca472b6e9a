# frozen_string_literal: true

require "snug"

module Snug
  # What the heap is made of, under the names of `snug exporter`: the metric's name without unit, the field of Snug.stats in
  # bytes, and what it is.
  METRICS = [
    [:heap_live, :live_allocated_bytes, "Blocks that the program allocated and has not freed."],
    [:heap_requested, :live_requested_bytes, "Bytes that the program asked for in those blocks."],
    [:heap_cached, :cached_bytes, "Freed blocks that threads keep at hand."],
    [:heap_slab_free, :slab_free_bytes, "Free blocks between live ones."],
    [:heap_dirty, :dirty_bytes, "Free pages that are not given back yet."],
    [:heap_metadata, :metadata_bytes, "Tables of the allocator."],
    [:heap_resident, :resident_bytes, "All of the heap that holds memory, at most."]
  ].freeze
end
