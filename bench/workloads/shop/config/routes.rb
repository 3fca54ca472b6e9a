# frozen_string_literal: true

Shop::Application.routes.draw do
  get "dashboard", to: "dashboard#show"
  resources :products, only: %i[index show] do
    get "photo", on: :member
  end
  get "search", to: "products#search"
  get "customers/:id/orders", to: "orders#index"
  get "reports/sales", to: "reports#sales"
  resources :imports, only: :create
end
