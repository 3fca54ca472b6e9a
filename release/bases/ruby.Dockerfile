# Debian's Ruby with snug active in every process: for `FROM snug-ruby:VERSION`. Made by release/base-images.
ARG BASE
ARG SNUG
FROM ${SNUG} AS snug

FROM ${BASE}
RUN apt-get -qq update && \
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends ca-certificates ruby bundler && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log
COPY --from=snug / /opt/snug/
RUN ln -s /opt/snug/snug /usr/local/bin/snug
ENV LD_PRELOAD=/opt/snug/libsnug.so
CMD ["irb"]
