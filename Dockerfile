# A static binary on an empty file system, with what TLS needs to know vendors by,
# and lame with its libraries, which makes MP3 of speech.
#
#   docker build -t tollhouse .
#   docker run --rm -p 127.0.0.1:8080:8080 tollhouse serve --demo
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/tollhouse ./cmd/tollhouse \
 && mkdir -p /out/data

FROM debian:bookworm-slim AS lame
RUN apt-get update && apt-get install -y --no-install-recommends lame \
 && mkdir /out && cp --parents -L /usr/bin/lame $(ldd /usr/bin/lame | grep -o '/[^ ]*') /out

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=lame /out /
COPY --from=build /out/tollhouse /tollhouse
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
# In a container, loopback is nobody else's; the admin address stays there, for `docker exec CONTAINER tollhouse account list`.
ENV PATH=/usr/bin:/ TOLLHOUSE_LISTEN=0.0.0.0:8080 TOLLHOUSE_DATA=/data
# Goroutines begin with 2 KiB of stack: two of the three of a stream need little more (docs/design/benchmarks.md, Load).
ENV GODEBUG=adaptivestackstart=0
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/tollhouse"]
CMD ["serve"]
