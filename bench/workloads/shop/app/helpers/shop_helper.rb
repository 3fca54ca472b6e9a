# frozen_string_literal: true

module ShopHelper
  def price(cents)
    number_to_currency(cents / 100.0, unit: "EUR", format: "%n %u")
  end

  def stars(reviews)
    return "not rated" if reviews.empty?
    average = reviews.sum(&:stars).fdiv(reviews.size)
    tag.span("#{'*' * average.round} #{average.round(1)}", class: "stars", title: pluralize(reviews.size, "review"))
  end
end
